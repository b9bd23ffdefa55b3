# Debian's kernel without installing it, and what an initramfs is made of. Sourced by scripts/pm-guest and
# scripts/crash-guest, which have $cache (kept) and $scratch (not kept), and `skip REASON`.

# A time-out, and silence unless it fails.
quietly() {
    local seconds=$1 out
    shift
    out=$(timeout "$seconds" "$@" 2>&1 </dev/null) || { echo "$out" >&2; return 1; }
}

is_static_busybox() { [ -x /bin/busybox ] && ! ldd /bin/busybox >/dev/null 2>&1; }

# Installs packages, if there are any in the list.
install_missing() {
    [ $# -eq 0 ] && return
    command -v apt-get >/dev/null || skip "no apt-get to install $* with"
    [ "$(id -u)" -eq 0 ] || skip "not root, and these packages are missing: $*"
    echo "installing $*"
    export DEBIAN_FRONTEND=noninteractive
    local install=(apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=60 "$@")
    quietly 300 "${install[@]}" 2>/dev/null ||
        { quietly 120 apt-get update && quietly 300 "${install[@]}"; } ||
        skip "apt-get cannot install $*"
}

# Name of the kernel package that Debian's meta-package depends on: kernel_package [OPTIONS OF APT-CACHE]
kernel_package() {
    timeout 60 apt-cache depends "$@" linux-image-amd64 2>/dev/null | awk '$1 == "Depends:" { print $2; exit }'
}

# $kernel: the unpacked package of Debian's kernel, not installed. One that is there already serves offline.
#   get_kernel [OPTIONS OF APT-CACHE]
get_kernel() {
    local package
    package=$(kernel_package "$@")
    [ -z "$package" ] && [ "$(id -u)" -eq 0 ] && quietly 120 apt-get update && package=$(kernel_package "$@")
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
    echo "downloading $1"
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

# Copies a program and the libraries that it needs.
add_program() {
    local library
    [ -n "$2" ] && cp -L "$1" "$root/$2"
    ldd "$1" 2>/dev/null | grep -o '/[^ ]*' | while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -Lu "$library" "$root$library"
    done
}

# Copies modules of $kernel, and those that they need, into $root, in the order in which to load them: add_modules NAME...
add_modules() {
    local module file
    # -C: ndctl's configuration replaces libnvdimm's insmod by a command.
    for module; do
        modprobe -C /dev/null -d "$kernel" -S "$release" --show-depends "$module" 2>/dev/null
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >"$scratch/modules"
    while read -r file; do
        cp "$file" "$root/modules/"
        case $file in *.xz) xz -dq "$root/modules/${file##*/}" ;; *.zst) zstd -dq --rm "$root/modules/${file##*/}" ;; esac
        basename "$file" | sed 's/\.\(xz\|zst\)$//'
    done <"$scratch/modules" >"$root/etc/modules"
}
