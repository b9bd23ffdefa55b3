//! What can be said of datasets: times, ratios, properties of users.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::Bench;

#[test]
fn lists_and_get_say_when_things_were_made_and_what_compression_saves() {
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let bench = Bench::new();
    bench.ok("pool create tank a --file-size 64M");
    bench.ok("volume create tank/a/v 8M -b 16K -p -o compression=lz4");
    bench.ok("fs create tank/f");
    bench.ok(&format!("volume serve tank/a/v --once --socket {}", bench.text("v.sock")));
    bench.client("v.sock", "tank/a/v").write(0, &[1; 256 << 10], true).unwrap();
    bench.ok("volume snapshot tank/a/v@s");
    let after = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let all = "dataset list -t folder,volume,filesystem,snapshot -Hp -o name,creation,compressratio";
    let lines = bench.ok(all);
    let rows: Vec<Vec<&str>> = lines.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows.len(), 5, "{lines}");
    for row in &rows {
        assert!((before..=after).contains(&row[1].parse().unwrap()), "{lines}");
        assert_eq!(row[2], if row[0] == "tank/f" { "1.00" } else { "4.00" }, "{lines}");
    }
    assert_eq!(bench.ok("volume list -t snapshot -H -o name,refcompressratio"), "tank/a/v@s\t4.00x\n");
    assert!(bench.ok("fs list -H -o creation,compressratio").contains("-"));
    let sorted = bench.ok("dataset list tank -H -o name -S compressratio");
    assert_eq!(sorted.lines().last(), Some("tank/f"), "{sorted}");
    let get = bench.ok("dataset get type,compressratio,creation,volsize tank/a tank/a/v@s -Hp");
    let rows: Vec<Vec<&str>> = get.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows[0], ["tank/a", "type", "folder", "-"]);
    assert_eq!(rows[1], ["tank/a", "compressratio", "4.00", "-"]);
    assert_eq!(rows[3], ["tank/a", "volsize", "-", "-"]);
    assert_eq!(rows[4], ["tank/a/v@s", "type", "snapshot", "-"]);
    assert_eq!(rows[7], ["tank/a/v@s", "volsize", "8388608", "-"]);
    let shown = bench.ok("dataset get creation tank/a -H -o value");
    assert!(shown.starts_with("20") && shown.contains(':'), "{shown}");
    assert!(bench.ok("dataset get all tank/a/v -H -o property").contains("refcompressratio"));
    // Counting them costs, so they are not in what nobody asked for.
    assert!(bench.json("dataset list")[0]["ratios"].is_null());
    assert!(bench.json("dataset list -o compressratio")[0]["ratios"]["used_percent"].is_u64());
}

#[test]
fn properties_of_users_are_set_inherited_and_removed() {
    let bench = Bench::new();
    bench.ok("pool create tank a --file-size 64M -O org:who=pool");
    bench.ok("volume create tank/a/v 1M -b 4K -p -o org:what=volume");
    bench.ok("fs create tank/f -o org:what=files");
    bench.ok("dataset create tank/d -o org:what=folder");
    bench.ok("volume snapshot tank/a/v@s");
    bench.ok("volume clone tank/a/v@s tank/c -o org:what=clone");
    bench.ok("dataset set org:x=1 sync=always org:y=a=b tank/a");
    let get = |line: &str| bench.ok(&format!("dataset get {line} -H -o value,source"));
    assert_eq!(get("org:who tank"), "pool\tlocal\n");
    assert_eq!(get("org:x,org:y tank/a/v"), "1\tinherited from tank/a\na=b\tinherited from tank/a\n");
    assert_eq!(
        get("org:what,org:who tank/a/v@s"),
        "volume\tinherited from tank/a/v\npool\tinherited from tank\n"
    );
    assert_eq!(get("org:none tank/a"), "-\t-\n");
    let listed = bench.ok("dataset list -H -o name,org:what -t volume,filesystem,folder -s name");
    let shown = "tank\t-\ntank/a\t-\ntank/a/v\tvolume\ntank/c\tclone\ntank/d\tfolder\ntank/f\tfiles\n";
    assert_eq!(listed, shown);
    assert_eq!(bench.ok("volume list -H -o name,org:x"), "tank/a/v\t1\ntank/c\t-\n");
    bench.ok("pool export tank");
    bench.ok("pool import tank");
    bench.ok("dataset set org:x=2 tank/a/v");
    assert_eq!(get("org:x tank/a/v"), "2\tlocal\n");
    bench.ok("dataset inherit org:x tank/a/v");
    assert_eq!(get("org:x tank/a/v"), "1\tinherited from tank/a\n");
    bench.ok("dataset inherit org:x tank/a");
    assert_eq!(get("org:x tank/a/v"), "-\t-\n");
    for (line, part) in [
        ("dataset set Org:x=1 tank/a", "Org:x"),
        ("dataset set x:=1 noname=2 tank/a", "noname"),
        ("volume create tank/new 1M -b 4K -o Org:x=1", "Org:x"),
        ("dataset create tank/new -o Org:x=1", "Org:x"),
    ] {
        let said = bench.fails(line, 3);
        assert!(said.contains(part), "{line}: {said}");
    }
    assert_eq!(get("x: tank/a"), "-\t-\n", "nothing of what was refused");
    bench.fails("dataset get type tank/new", 3);
    bench.ok("pool check tank");
}
