# Packages, kernel, binaries and the initramfs. Sourced by scripts/pm-guest.

. scripts/pm-guest.d/kernel.sh

# Ends the run: this machine cannot do it.
skip() {
    echo "SKIPPED: $1"
    [ -z "${PM_GUEST_REQUIRED:-}" ]
    exit
}

die() {
    echo "pm-guest: $1" >&2
    exit 1
}

prepare() {
    [ "$(uname -m)" = x86_64 ] || skip "the guest is x86-64, this machine is $(uname -m)"
    command -v cargo >/dev/null || skip "there is no cargo"
    target=$(cargo metadata --no-deps --format-version 1 --offline | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
    [ -d "$(dirname "$target")" ] || die "where is cargo's target directory?"
    cache=$target/pm-guest logs=$target/pm-guest/logs
    mkdir -p "$cache"
    exec 9>"$cache/lock"
    flock -w 5 9 || skip "another run holds $cache/lock"
    rm -rf "$logs"
    mkdir -p "$logs"
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/pm-guest.XXXXXX") || die "no temporary directory"
    trap 'power_off; rm -rf "$scratch"' EXIT
    trap 'exit 130' INT TERM HUP
    [ "$(df -Pk "$scratch" | awk 'NR == 2 { print $4 }')" -ge 1048576 ] || skip "less than 1 GiB free in $scratch"
    install_packages
    get_kernel
    build_binaries
    make_initramfs
}

install_packages() {
    local missing=()
    command -v qemu-system-x86_64 >/dev/null || missing+=(qemu-system-x86)
    command -v ndctl >/dev/null || missing+=(ndctl)
    command -v mke2fs >/dev/null || missing+=(e2fsprogs)
    command -v modprobe >/dev/null || missing+=(kmod)
    command -v xz >/dev/null || missing+=(xz-utils)
    is_static_busybox || missing+=(busybox-static)
    install_missing "${missing[@]}"
}

build_binaries() {
    echo "pm-guest: building"
    timeout 1200 cargo build -q --locked -p fastness-cli --message-format=json >"$scratch/cli.json" ||
        die "fastness does not build"
    timeout 1200 cargo test -q --locked -p fastness-pmem --no-run --message-format=json >"$scratch/tests.json" ||
        die "fastness-pmem's tests do not build"
    mkdir -p "$scratch/root/tests"
    local binary name count=0
    while read -r binary; do
        name=$(basename "$binary" | sed 's/-[0-9a-f]\{16\}$//')
        cp "$binary" "$scratch/root/tests/$name"
        count=$((count + 1))
    done < <(sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' "$scratch/tests.json" "$scratch/cli.json")
    [ "$count" -ge 9 ] || die "only $count binaries were built"
    strip -g "$scratch"/root/tests/* 2>/dev/null || true
}

make_initramfs() {
    local root=$scratch/root file
    mkdir -p "$root"/{bin,dev,proc,sys,tmp,mnt,modules,etc}
    cp /bin/busybox "$root/bin/busybox"
    cp $here/init "$root/init"
    cp $here/acks.sh "$root/acks.sh"
    chmod 755 "$root/init"
    add_program "$(command -v ndctl)" bin/ndctl
    add_program "$(command -v mke2fs)" bin/mkfs.ext4
    for file in "$root"/tests/*; do add_program "$file" ""; done
    # Where the tests make their directories: a path that was compiled into them.
    echo "$target/tmp" >"$root/etc/test-dir"
    add_modules virtio_pci virtio_console nfit nd_pmem dax_pmem device_dax crc32c_generic ext4
    [ -s "$root/etc/modules" ] || die "no modules found for $release"
    (cd "$root" && find . | busybox cpio -o -H newc -R 0:0 2>/dev/null) >"$scratch/initramfs" ||
        die "no initramfs"
    rm -rf "$root"
}
