//! Lists with chosen columns, several properties at once, events.

use crate::support::Bench;

fn bench() -> Bench {
    let bench = Bench::new();
    bench.ok("pool create tank a --file-size 64M");
    bench.ok("dataset create -p tank/a/b/c");
    bench.ok("volume create tank/a/small 1M -b 4K");
    bench.ok("volume create tank/large 1G -b 64K");
    bench
}

#[test]
fn lists_have_columns_for_people_and_for_scripts() {
    let bench = bench();
    let lines = |line: &str| bench.ok(line).lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        lines("dataset list -H -o name"),
        ["tank", "tank/a", "tank/a/b", "tank/a/b/c", "tank/a/small", "tank/large"]
    );
    let volumes = lines("dataset list -Hp -t volume -o name,volsize,volblocksize -S volsize");
    assert_eq!(volumes, ["tank/large\t1073741824\t64K", "tank/a/small\t1048576\t4K"]);
    assert_eq!(lines("dataset list tank/a -H -o name -d 0"), ["tank/a"]);
    assert_eq!(lines("dataset list tank/a -H -o name -d 1"), ["tank/a", "tank/a/b", "tank/a/small"]);
    assert_eq!(lines("dataset list tank/a/b -H -o name -r").len(), 2);
    assert_eq!(lines("volume list -H -o name,address -s name"), ["tank/a/small\t-", "tank/large\t-"]);
    assert_eq!(lines("pool list -H -o name,state"), ["tank\tonline"]);
    assert_eq!(lines("pool get failmode tank -H -o value"), ["wait"]);
}

#[test]
fn properties_are_set_together_or_not_at_all() {
    let bench = bench();
    bench.ok("dataset set compression=lz4 quota=10M tank/a tank/a/b");
    let get = |line: &str| bench.ok(&format!("dataset get {line} -H -o value"));
    assert_eq!(get("compression,quota tank/a tank/a/b"), "lz4\n10M\nlz4\n10M\n");
    for (line, code, part) in [
        ("dataset set compression=zstd reservation=1T tank/a", 5, "reservation"),
        ("dataset set compression=zstd sync=never tank/a", 3, "sync"),
        ("dataset set compression=zstd volblocksize=4K tank/a", 3, "volblocksize"),
        ("dataset set compression=zstd", 3, "PROPERTY=VALUE"),
        ("dataset set tank/a", 3, "PROPERTY=VALUE"),
        ("dataset list -o frob", 3, "frob"),
        ("dataset list -t frob", 3, "frob"),
        ("pool list -s frob", 3, "frob"),
    ] {
        let said = bench.fails(line, code);
        assert!(said.contains(part), "{line}: {said}");
    }
    assert_eq!(get("compression tank/a"), "lz4\n", "nothing of what was refused");
    bench.ok("pool set failmode=continue autoexpand=on tank");
    assert_eq!(bench.ok("pool get failmode,autoexpand tank -H -o value"), "on\ncontinue\n");
    assert_eq!(bench.ok("pool get logdata tank -H -o value,source"), "both\tdefault\n");
    assert!(bench.fails("pool set logdata=none tank", 3).contains("both, pm"));
    bench.ok("pool set logdata=pm tank");
    assert_eq!(bench.ok("pool get logdata tank -H -o value,source"), "pm\tlocal\n");
    let events = bench.ok("pool events tank -H");
    assert!(events.contains("\ttank\t1\tfailmode is continue\n"), "{events}");
    assert!(bench.json("pool events").as_array().unwrap().len() > 1);
}

#[test]
fn what_was_asked_of_a_pool_is_kept_in_it() {
    let bench = bench();
    bench.ok("dataset set quota=10M tank/a");
    bench.fails("dataset create tank/a", 3);
    bench.ok("pool export tank");
    bench.ok("pool import tank");
    let commands = bench.ok("pool history tank -H -o command");
    let lines: Vec<_> = commands.lines().collect();
    assert!(lines.contains(&"create_dataset name=tank/a/b/c with_parents=true"), "{commands}");
    assert!(lines.iter().any(|line| line.starts_with("set_properties name=tank/a")), "{commands}");
    assert_eq!(lines.last(), Some(&"export"), "{commands}");
    assert!(!commands.contains("name=tank/a\n"), "what was refused is no history: {commands}");
    let user = rustix::process::getuid().as_raw();
    assert!(bench.json("pool history").as_array().unwrap().iter().all(|entry| entry["user"] == user));
    // The latest hundred.
    for count in 0..100 {
        bench.ok(&format!("dataset set quota={}M tank/a", 10 + count));
    }
    assert_eq!(bench.json("pool history tank").as_array().unwrap().len(), 100);
    assert_eq!(bench.json("pool check")["is_clean"], true);
}
