//! Devices that become larger.

use crate::support::Bench;

fn lengthen(bench: &Bench, names: &[&str], len_bytes: u64) {
    for name in names {
        std::fs::File::options().write(true).open(bench.path(name)).unwrap().set_len(len_bytes).unwrap();
    }
}

fn total_bytes(bench: &Bench) -> u64 {
    bench.json("pool list tank")[0]["total_bytes"].as_u64().unwrap()
}

#[test]
fn devices_that_have_grown_are_used_when_that_is_asked_for() {
    let bench = Bench::new();
    bench.ok("pool create tank mirror a b --file-size 64M");
    bench.ok("volume create tank/v 256M");
    bench.ok("volume serve tank/v --socket v.sock");
    let before = total_bytes(&bench);
    let mut client = bench.client("v.sock", "tank/v");
    client.write(0, &[7; 4096], true).unwrap();
    assert!(bench.ok("pool online -e tank a").contains("0B larger"));
    lengthen(&bench, &["a"], 128 << 20);
    assert!(bench.ok("pool online -e tank a").contains("0B larger"), "the other side is as it was");
    lengthen(&bench, &["b"], 128 << 20);
    assert!(bench.ok("pool online -e tank b").contains("64.0M larger"));
    assert_eq!(total_bytes(&bench), before + (64 << 20));
    // More than there was before.
    for at in 0..20u64 {
        client.write(at * (4 << 20), &vec![at as u8 ^ 0x5a; 4 << 20], false).unwrap();
    }
    client.flush().unwrap();
    drop(client);
    bench.ok("pool export tank");
    // At each import, if the pool is to.
    lengthen(&bench, &["a", "b"], 192 << 20);
    bench.ok("pool import tank");
    assert_eq!(total_bytes(&bench), before + (64 << 20));
    bench.ok("pool set autoexpand=on tank");
    assert_eq!(total_bytes(&bench), before + (128 << 20), "and when it is set");
    bench.ok("pool export tank");
    lengthen(&bench, &["a", "b"], 256 << 20);
    bench.ok("pool import tank");
    assert_eq!(total_bytes(&bench), before + (192 << 20));
    let mut client = bench.client("v.sock", "tank/v");
    for at in 0..20u64 {
        assert!(client.read(at * (4 << 20), 4 << 20).unwrap().iter().all(|byte| *byte == at as u8 ^ 0x5a));
    }
    drop(client);
    bench.ok("pool scrub tank --wait");
    assert_eq!(bench.json("pool check")["is_clean"], true);
    // A device that is smaller than the pool knows it is none that it can use.
    bench.ok("pool export tank");
    lengthen(&bench, &["a"], 64 << 20);
    bench.run("pool import tank --degraded");
    let said = bench.ok_or_found("pool status tank");
    assert!(said.contains("degraded"), "{said}");
}
