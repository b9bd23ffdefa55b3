"""Prints the results of scripts/bench-databases as Markdown: table.py FILE. A line: program, system, round, value."""

import statistics
import sys

# What the columns are called; ratios are of pmem against these, with the goals.
SYSTEMS = {
    "pmem": "kind pmem, emulated PM",
    "lwb": "kind lwb",
    "disabled": "sync=disabled",
    "ext4": "ext4",
    "folder": "the disk's file system",
    "responder": "First Responder over ext4, emulated PM",
    "run": "fastness run over ext4, emulated PM",
    "tmpfs": "tmpfs",
    "ceph": "CephFS",
    "ceph-mount": "First Responder over CephFS, emulated PM",
    "ceph-run": "fastness run over CephFS, emulated PM",
    "ceph-melov": "fastness run over CephFS, MeLo@V, emulated PM",
}
GOALS = {"disabled": 0.8, "ext4": 1.0}
# And of a cache in front of ext4.
CACHE_GOALS = {"ext4": None, "tmpfs": 0.8}
CEPH_GOALS = {"ceph": None, "run": 0.7}
PROGRAMS = {
    "write4k": "synchronous writes, 4 KiB, 1 thread",
    "write64k": "synchronous writes, 64 KiB, 1 thread",
    "redis": "Redis: sets, appendfsync always, 16 clients",
    "sqlite": "SQLite: transactions, WAL, FULL",
    "rocksdb": "RocksDB: fillsync",
    "postgresql": "PostgreSQL: pgbench, 4 clients",
    "mariadb": "MariaDB: sysbench oltp_insert, 4 clients",
    "varmail": "varmail: rounds, 4 processes",
    "oltp": "oltp: reads and writes, 5 threads",
    "append": "append 100 bytes and fsync",
    "bytes to PM": "the same: bytes written to emulated PM for each",
    "bytes to disk": "the same: bytes written to the disk for each",
}


def kind(system):
    """Without the flush period after an @."""
    return system.split("@")[0]


def heading(system):
    name, _, period = system.partition("@")
    return SYSTEMS[name] + (f", {period} ms" if period else "")


def shown(value):
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread(values, show=shown):
    if not values:
        return ""
    return f"{show(statistics.median(values))} ({show(min(values))}-{show(max(values))})"


def main():
    results = {}
    for line in open(sys.argv[1], encoding="utf-8"):
        program, system, turn, value = line.rstrip("\n").split("\t")[:4]
        results.setdefault(program, {}).setdefault(system, []).append((turn, float(value)))
    used = {system for by in results.values() for system in by}
    used = sorted(used, key=lambda system: (list(SYSTEMS).index(kind(system)), int("0" + system.partition("@")[2])))
    against = [("pmem", system, goal) for system, goal in GOALS.items()]
    against += [("responder", system, goal) for system, goal in CACHE_GOALS.items()]
    against += [("run", system, goal) for system, goal in CACHE_GOALS.items()]
    for ours in used:
        if kind(ours) in ("ceph-mount", "ceph-run", "ceph-melov"):
            goals = CEPH_GOALS if kind(ours) == "ceph-run" else {"ceph": None}
            against += [(ours, system, goal) for system, goal in goals.items()]
    against = [each for each in against if each[0] in used and each[1] in used]
    head = ["a second"] + [heading(system) for system in used]
    for ours, system, goal in against:
        head += [f"{ours} : {SYSTEMS[system]}"] + ([f"at least {goal:g}"] if goal else [])
    print("| " + " | ".join(head) + " |")
    print("|---|" + "--:|" * (len(head) - 1))
    for program, title in PROGRAMS.items():
        by = results.get(program)
        if not by:
            continue
        row = [title] + [spread([value for _, value in by.get(system, [])]) for system in used]
        for ours, system, goal in against:
            # Bytes are no speed.
            others = {} if program.startswith("bytes") else dict(by.get(system, []))
            ratios = [value / others[turn] for turn, value in by.get(ours, []) if turn in others]
            row.append(spread(ratios, lambda ratio: f"{ratio:.2f}"))
            if goal:
                met = ratios and statistics.median(ratios) >= goal
                row.append("" if not ratios else "yes" if met else "NO")
        print("| " + " | ".join(row) + " |")


main()
