#!/bin/sh
# Counts the flushes that a synchronous write sends to the disk with the data: ext4-external-journal.sh DATA LOG
# Run it as root. DATA and LOG are erased; they can be loop devices. DATA must have a volatile write cache
# (queue/write_cache says "write back").
set -e
data=$1 log=$2 tracing=/sys/kernel/tracing
mount -t tracefs none $tracing 2>/dev/null || true
number=$(tr : , </sys/class/block/${data##*/}/dev)
echo "$(uname -r), $data has $(cat /sys/class/block/${data##*/}/queue/write_cache)"

# try TEXT COMMAND...
try() {
    text=$1
    shift
    sync
    echo >$tracing/trace
    "$@"
    writes=$(grep block_rq_complete $tracing/trace | grep " $number W" | grep -c -v ' F') || true
    flushes=$(grep block_rq_issue $tracing/trace | grep -c " $number F") || true
    echo "$text: $writes writes, $flushes flushes"
}

run() {
    mkdir -p /mnt/t
    mount -t ext4 $data /mnt/t
    dd if=/dev/zero of=/mnt/t/old bs=4k count=4 conv=fsync 2>/dev/null
    echo 1 >$tracing/events/block/block_rq_issue/enable
    echo 1 >$tracing/events/block/block_rq_complete/enable
    try "  new file, fsync       " dd if=/dev/zero of=/mnt/t/new bs=4k count=1 conv=fsync
    try "  overwrite, fsync      " dd if=/dev/zero of=/mnt/t/old bs=4k count=1 conv=notrunc,fsync
    try "  new file, sync        " sh -c 'dd if=/dev/zero of=/mnt/t/new3 bs=4k count=1; sync'
    echo 0 >$tracing/events/block/block_rq_issue/enable
    echo 0 >$tracing/events/block/block_rq_complete/enable
    umount /mnt/t
}

echo "journal on the same disk:"
mkfs.ext4 -q -F -b 4096 $data
run 2>/dev/null
echo "journal on another disk:"
mkfs.ext4 -q -F -O journal_dev -b 4096 $log
mkfs.ext4 -q -F -b 4096 -J device=$log $data
run 2>/dev/null
