//! Thick volumes, and those that could outgrow their pool.

use crate::support::Bench;

#[test]
fn a_thick_volume_has_its_room_and_others_are_warned_of() {
    let bench = Bench::new();
    bench.ok("pool create tank a --file-size 64M");
    let overcommitted = || bench.ok("pool list -Hp -o overcommitted").trim().parse::<u64>().unwrap();
    let said = bench.run("volume create tank/small 8M -b 4K --sparse");
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    assert_eq!(overcommitted(), 0);
    bench.ok("volume create tank/thick 24M -b 4K --thick");
    let get = |line: &str| bench.ok(&format!("dataset get {line} -H -o value"));
    assert_eq!(get("refreservation tank/thick tank/small"), "24M\nnone\n");
    assert!(bench.fails("volume create tank/more 48M -b 4K --thick", 5).contains("tank/more"));
    let said = String::from_utf8(bench.run("volume create tank/more 48M -b 4K").stderr).unwrap();
    assert!(said.starts_with("warning: ") && said.contains("refreservation=auto"), "{said}");
    assert!(overcommitted() > 16 << 20, "{}", overcommitted());
    assert!(bench.ok("pool status tank").contains("would be missing"));
    // What is kept is not free for others.
    let free: u64 = bench.ok("dataset list tank/more -Hp -o available").trim().parse().unwrap();
    assert!(free < 40 << 20, "{free}");
    bench.ok("volume snapshot tank/thick@empty");
    bench.ok("volume resize tank/thick 26M");
    assert_eq!(get("refreservation tank/thick"), "26M\n");
    bench.fails("volume resize tank/thick 1G", 5);
    assert_eq!(get("refreservation,volsize tank/thick"), "26M\n26.0M\n");
    bench.ok("volume resize tank/thick 8M --shrink");
    assert_eq!(get("refreservation tank/thick"), "8M\n");
    bench.ok("dataset set refreservation=auto tank/small");
    bench.ok("dataset set refreservation=none tank/thick");
    assert_eq!(get("refreservation tank/small tank/thick"), "8M\nnone\n");
    assert!(bench.fails("dataset set refreservation=auto tank", 3).contains("no volume"));
    assert!(bench.fails("dataset set refreservation=1M tank", 3).contains("volumes have it"));
    assert!(bench.ok("pool get feature@thick_volumes tank -H -o value").contains("active"));
    bench.ok("pool check tank");
}
