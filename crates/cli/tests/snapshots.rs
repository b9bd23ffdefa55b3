//! Snapshots and clones of volumes on the command line.

mod support;

use support::Bench;

/// A pool with a volume that is served, and a snapshot of each of its two states.
fn world() -> Bench {
    let bench = Bench::new();
    bench.ok("pool create tank a --file-size 64M");
    bench.ok("volume create tank/v 8M -b 4K");
    bench.ok(&format!("volume serve tank/v --socket {}", bench.text("v.sock")));
    let mut client = bench.client("v.sock", "tank/v");
    client.write(0, &[1; 64 << 10], false).unwrap();
    bench.ok("volume snapshot tank/v@one");
    client.write(0, &[2; 32 << 10], false).unwrap();
    bench.ok("volume snapshot tank/v@two tank/v@three");
    client.write(0, &[3; 16 << 10], true).unwrap();
    drop(client);
    bench
}

fn first(bench: &Bench, socket: &str, name: &str) -> u8 {
    bench.client(socket, name).read(0, 1).unwrap()[0]
}

#[test]
fn snapshots_are_served_and_survive_a_new_import() {
    let bench = world();
    let uri = bench.ok(&format!("volume serve tank/v@one --socket {}", bench.text("one.sock")));
    assert!(uri.contains("tank/v@one"), "{uri}");
    assert_eq!(first(&bench, "one.sock", "tank/v@one"), 1);
    let mut client = bench.client("one.sock", "tank/v@one");
    assert!(client.write(0, b"x", false).is_err(), "a snapshot refuses writes");
    drop(client);
    bench.ok("pool export tank");
    bench.ok("pool import tank");
    assert_eq!(first(&bench, "one.sock", "tank/v@one"), 1);
    assert_eq!(first(&bench, "v.sock", "tank/v"), 3);
    assert!(bench.fails("dataset destroy tank/v@one", 4).contains("unserve"));
    bench.ok("volume unserve tank/v@one");
    let listed = bench.ok("volume list -t snapshot -Hp -o name,used,referenced,size");
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(
        rows,
        [
            ["tank/v@one", "32768", "65536", "8388608"],
            ["tank/v@two", "0", "65536", "8388608"],
            ["tank/v@three", "0", "65536", "8388608"]
        ]
    );
    assert_eq!(bench.ok("dataset list tank -H -o name"), "tank\ntank/v\n");
    assert_eq!(bench.ok("dataset list tank -t snapshot -H -o name").lines().count(), 3);
    bench.ok("pool check tank");
    assert!(bench.ok("pool get all tank").contains("snapshots"));
}

#[test]
fn a_volume_goes_back_and_clones_go_on() {
    let bench = world();
    assert!(bench.fails("volume rollback tank/v@three", 4).contains("unserve"));
    bench.ok("volume unserve tank/v");
    let said = bench.fails("volume rollback tank/v@one", 3);
    assert!(said.contains("--recursive") && said.contains("tank/v@two, tank/v@three"), "{said}");
    bench.ok("volume clone tank/v@two tank/below/c -p -o compression=lz4");
    assert!(bench.fails("volume rollback -r tank/v@one", 4).contains("tank/below/c"));
    bench.ok("volume rollback tank/v@three");
    for (name, socket) in [("tank/v", "v2.sock"), ("tank/below/c", "c.sock")] {
        bench.ok(&format!("volume serve {name} --once --socket {}", bench.text(socket)));
        assert_eq!(first(&bench, socket, name), 2);
        bench.client(socket, name).write(0, b"own", true).unwrap();
        bench.ok(&format!("volume unserve {name}"));
    }
    let origin = bench.ok("volume list -H -o name,origin");
    assert!(origin.contains("tank/below/c\ttank/v@two") && origin.contains("tank/v\t-"), "{origin}");
    bench.ok("volume rollback tank/v@three");
    bench.ok(&format!("volume serve tank/v --once --socket {}", bench.text("v3.sock")));
    assert_eq!(first(&bench, "v3.sock", "tank/v"), 2);
    bench.ok("pool check tank");
}

#[test]
fn what_would_be_free_is_said_before_it_is() {
    let bench = world();
    bench.ok("volume unserve tank/v");
    let said = bench.fails("dataset destroy tank/v", 3);
    assert!(said.contains("snapshots") && said.contains("--recursive"), "{said}");
    let would = bench.ok("dataset destroy -n tank/v@two%three");
    assert_eq!(would, "would destroy tank/v@two\nwould destroy tank/v@three\nwould free 16.0K\n");
    assert!(bench.ok("dataset destroy -n tank/v@%").ends_with("would free 48.0K\n"));
    for line in
        ["dataset destroy tank/v@none", "dataset destroy tank/v@three%one", "dataset destroy tank/w@%"]
    {
        bench.fails(line, 3);
    }
    bench.ok("volume clone tank/v@one tank/c");
    let said = bench.fails("dataset destroy tank/v@one", 4);
    assert!(said.contains("tank/c"), "{said}");
    bench.ok("dataset destroy -r tank/v@one");
    bench.ok("dataset destroy tank/v@%two");
    assert_eq!(bench.ok("volume list -t snapshot -H -o name"), "tank/v@three\n");
    for (line, code) in [
        ("volume snapshot tank/none@a", 3),
        ("volume snapshot tank@a", 11),
        ("volume snapshot tank/v", 3),
        ("volume snapshot tank/v@three", 3),
        ("volume clone tank/v tank/d", 3),
        ("volume clone tank/v@three other/d", 3),
        ("volume rollback tank/v@none", 3),
        ("volume resize tank/v@three 16M", 3),
        ("dataset set readonly=off tank/v@three", 3),
        ("dataset rename tank/v@three tank/v@four", 3),
    ] {
        bench.fails(line, code);
    }
    bench.ok("dataset destroy -r tank/v");
    assert_eq!(bench.ok("dataset list tank -H -o name"), "tank\n");
    bench.ok("pool check tank");
}

/// A clone replaces the volume that it was made of, which then goes.
#[test]
fn a_clone_takes_the_place_of_its_volume() {
    let bench = world();
    bench.ok("volume clone tank/v@two tank/c");
    assert!(bench.fails("volume promote tank/c", 4).contains("volume unserve tank/v"));
    bench.ok("volume unserve tank/v");
    assert!(bench.fails("volume promote tank/v", 3).contains("no clone"));
    bench.fails("volume promote tank/none", 3);
    bench.ok("volume snapshot tank/c@one");
    assert!(bench.fails("volume promote tank/c", 3).contains("tank/c@one exists already"));
    bench.ok("dataset destroy tank/c@one");
    bench.ok("volume promote tank/c");
    assert_eq!(
        bench.ok("volume list -t snapshot -H -o name,clones"),
        "tank/c@one\t-\ntank/c@two\ttank/v\ntank/v@three\t-\n"
    );
    assert_eq!(bench.ok("volume list -H -o name,origin"), "tank/c\t-\ntank/v\ttank/c@two\n");
    bench.ok(&format!("volume serve tank/v --socket {}", bench.text("v2.sock")));
    bench.ok(&format!("volume serve tank/c --socket {}", bench.text("c.sock")));
    bench.client("c.sock", "tank/c").write(0, &[7; 4096], true).unwrap();
    bench.ok("pool export tank");
    bench.ok("pool import tank");
    assert_eq!((first(&bench, "v2.sock", "tank/v"), first(&bench, "c.sock", "tank/c")), (3, 7));
    bench.ok("volume unserve tank/v");
    bench.ok("dataset destroy -r tank/v");
    assert_eq!(bench.ok("volume list -t snapshot -H -o name"), "tank/c@one\ntank/c@two\n");
    assert_eq!(first(&bench, "c.sock", "tank/c"), 7);
    assert!(bench.ok("pool history tank").contains("promote name=tank/c"));
    bench.ok("pool check tank");
}
