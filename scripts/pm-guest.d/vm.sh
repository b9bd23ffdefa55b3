# One boot of the guest. Sourced by scripts/pm-guest.

qemu_pid=""
readonly NVDIMMS=3 NVDIMM_SIZE=128M

# Fresh, empty NVDIMMs; their files outlive each QEMU.
new_nvdimms() {
    local index
    for ((index = 0; index < NVDIMMS; index++)); do
        rm -f "$scratch/nvdimm$index"
        truncate -s "$NVDIMM_SIZE" "$scratch/nvdimm$index"
    done
}

# boot NAME PERSISTENCE [KERNEL ARGUMENTS]: starts QEMU, and does not wait for it.
boot() {
    local name=$1 persistence=$2 arguments=${3:-} index port file
    local devices=()
    for ((index = 0; index < NVDIMMS; index++)); do
        devices+=(-object "memory-backend-file,id=m$index,share=on,mem-path=$scratch/nvdimm$index,size=$NVDIMM_SIZE"
            -device "nvdimm,id=n$index,memdev=m$index")
    done
    # Without ioeventfd and buffers: when the guest's write() returns, the line is in the host's file.
    devices+=(-device "virtio-serial-pci,ioeventfd=off")
    for port in report $CUT_MEDIA; do
        file=$logs/$name.$port.acks
        [ "$port" = report ] && file=$logs/$name.report
        devices+=(-chardev "file,id=$port,path=$file" -device "virtserialport,chardev=$port,name=$port")
    done
    # QEMU dies with this script, whatever that dies of.
    setpriv --pdeathsig KILL qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot \
        -machine "q35,nvdimm=on,nvdimm-persistence=$persistence" -cpu max -accel tcg,thread=multi -smp 2 \
        -m 1024M,slots=$((NVDIMMS + 1)),maxmem=8G "${devices[@]}" -serial "file:$logs/$name.console" \
        -kernel "$kernel/boot/vmlinuz-$release" -initrd "$scratch/initramfs" \
        -append "console=ttyS0 panic=-1 mitigations=off pm_guest.phase=${name%%-*} $arguments" \
        >"$logs/$name.qemu" 2>&1 9>&- </dev/null &
    qemu_pid=$!
}

# Waits until QEMU has ended.
await_end() {
    local deadline=$((SECONDS + $1))
    while kill -0 "$qemu_pid" 2>/dev/null; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.2
    done
}

# Waits until every log has acknowledged a few records.
await_acks() {
    local name=$1 deadline=$((SECONDS + $2)) medium ready
    while [ "$SECONDS" -lt "$deadline" ]; do
        ready=1
        for medium in $CUT_MEDIA; do
            [ "$(head -n 30 "$logs/$name.$medium.acks" 2>/dev/null | wc -l)" -eq 30 ] || ready=0
        done
        [ "$ready" -eq 1 ] && return
        kill -0 "$qemu_pid" 2>/dev/null || return 1
        sleep 0.2
    done
    return 1
}

# kill -9, as a power cut; also how each boot ends, whatever became of it.
power_off() {
    [ -n "$qemu_pid" ] || return 0
    kill -9 "$qemu_pid" 2>/dev/null
    wait "$qemu_pid" 2>/dev/null
    qemu_pid=""
}
