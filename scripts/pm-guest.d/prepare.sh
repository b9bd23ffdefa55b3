# Packages, kernel, binaries and the initramfs. Sourced by scripts/pm-guest.

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

# A time-out, and silence unless it fails.
quietly() {
    local seconds=$1 out
    shift
    out=$(timeout "$seconds" "$@" 2>&1 </dev/null) || { echo "$out" >&2; return 1; }
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

is_static_busybox() { [ -x /bin/busybox ] && ! ldd /bin/busybox >/dev/null 2>&1; }

install_packages() {
    local missing=()
    command -v qemu-system-x86_64 >/dev/null || missing+=(qemu-system-x86)
    command -v ndctl >/dev/null || missing+=(ndctl)
    command -v mke2fs >/dev/null || missing+=(e2fsprogs)
    command -v modprobe >/dev/null || missing+=(kmod)
    command -v xz >/dev/null || missing+=(xz-utils)
    is_static_busybox || missing+=(busybox-static)
    [ ${#missing[@]} -eq 0 ] && return
    command -v apt-get >/dev/null || skip "no apt-get to install ${missing[*]} with"
    [ "$(id -u)" -eq 0 ] || skip "not root, and these packages are missing: ${missing[*]}"
    echo "pm-guest: installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    local install=(apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=60 "${missing[@]}")
    quietly 300 "${install[@]}" 2>/dev/null ||
        { quietly 120 apt-get update && quietly 300 "${install[@]}"; } ||
        skip "apt-get cannot install ${missing[*]}"
}

# Name of the kernel package that Debian's meta-package depends on.
kernel_package() {
    timeout 60 apt-cache depends linux-image-amd64 2>/dev/null | awk '$1 == "Depends:" { print $2; exit }'
}

# $kernel: the unpacked package of Debian's kernel, not installed. One that is there already serves offline.
get_kernel() {
    local package
    package=$(kernel_package)
    [ -z "$package" ] && [ "$(id -u)" -eq 0 ] && quietly 120 apt-get update && package=$(kernel_package)
    [ -n "$package" ] && [ ! -e "$cache/$package/ready" ] && unpack_kernel "$package"
    kernel=$cache/$package
    [ -e "$kernel/ready" ] || kernel=$(dirname "$(ls -dt "$cache"/*/ready 2>/dev/null | head -n 1)")
    [ -e "$kernel/ready" ] || skip "no package of a Debian kernel can be downloaded (${package:-linux-image-amd64})"
    release=$(basename "$kernel"/boot/vmlinuz-*) release=${release#vmlinuz-}
}

unpack_kernel() {
    local dir=$cache/$1.new
    rm -rf "$dir"
    mkdir -p "$dir/deb"
    echo "pm-guest: downloading $1"
    (cd "$dir/deb" && { quietly 300 apt-get download "$1" 2>/dev/null ||
        { [ "$(id -u)" -eq 0 ] && quietly 120 apt-get update && quietly 300 apt-get download "$1"; }; }) || return
    dpkg-deb --fsys-tarfile "$dir"/deb/*.deb |
        tar -x -C "$dir" --exclude='*/drivers/net' --exclude='*/drivers/gpu' --exclude='*/drivers/media' \
            --exclude='*/sound' --exclude='*/share' || return
    [ -d "$dir/lib" ] || ln -s usr/lib "$dir/lib"
    [ -d "$dir/usr/lib" ] || { mkdir -p "$dir/usr" && ln -s ../lib "$dir/usr/lib"; }
    quietly 120 depmod -b "$dir" "$(basename "$dir"/lib/modules/*)" || return
    rm -rf "$dir/deb"
    touch "$dir/ready"
    mv "$dir" "$cache/$1"
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

# Copies a program and the libraries that it needs.
add_program() {
    local library
    [ -n "$2" ] && cp -L "$1" "$root/$2"
    ldd "$1" 2>/dev/null | grep -o '/[^ ]*' | while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -Lu "$library" "$root$library"
    done
}

make_initramfs() {
    local root=$scratch/root module file
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
    # -C: ndctl's configuration replaces libnvdimm's insmod by a command.
    for module in virtio_pci virtio_console nfit nd_pmem dax_pmem device_dax crc32c_generic ext4; do
        modprobe -C /dev/null -d "$kernel" -S "$release" --show-depends "$module" 2>/dev/null
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >"$scratch/modules"
    while read -r file; do
        cp "$file" "$root/modules/"
        case $file in *.xz) xz -dq "$root/modules/${file##*/}" ;; *.zst) zstd -dq --rm "$root/modules/${file##*/}" ;; esac
        basename "$file" | sed 's/\.\(xz\|zst\)$//'
    done <"$scratch/modules" >"$root/etc/modules"
    [ -s "$root/etc/modules" ] || die "no modules found for $release"
    (cd "$root" && find . | busybox cpio -o -H newc -R 0:0 2>/dev/null) >"$scratch/initramfs" ||
        die "no initramfs"
    rm -rf "$root"
}
