//! Trims: files get smaller, and what is stored stays.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use crate::support::Bench;

/// Bytes that a file takes.
fn taken(bench: &Bench, name: &str) -> u64 {
    std::fs::metadata(bench.path(name)).unwrap().blocks() * 512
}

/// A pool of which 24 MiB were written and freed, and 1 MiB is in use.
fn bench() -> Bench {
    let bench = Bench::new();
    bench.ok("pool create tank a --file-size 256M");
    for name in ["old", "new"] {
        bench.ok(&format!("volume create tank/{name} 32M -b 16K"));
        bench.ok(&format!("volume serve tank/{name} --once --socket {}", bench.text(name)));
        let mut client = bench.client(name, &format!("tank/{name}"));
        let mut noise = 1_u64;
        let count = if name == "old" { 24 } else { 1 };
        for at in 0..count {
            let data: Vec<u8> = (0..1 << 17)
                .flat_map(|_| {
                    noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    noise.to_le_bytes()
                })
                .collect();
            client.write(at << 20, &data, at + 1 == count).unwrap();
        }
    }
    bench
}

fn free(bench: &Bench) {
    bench.ok("pool sync tank");
    bench.ok("volume unserve tank/old --force");
    bench.ok("dataset destroy tank/old");
    bench.ok("pool sync tank");
    bench.ok("pool sync tank");
}

#[test]
fn a_trim_gives_back_what_is_free() {
    let bench = bench();
    free(&bench);
    let before = taken(&bench, "a");
    assert!(before > 24 << 20, "{before}");
    let said = bench.ok("pool trim tank --wait");
    assert!(said.contains("trim done") && !said.contains("wrong"), "{said}");
    let after = taken(&bench, "a");
    assert!(after + (20 << 20) < before, "{before} {after}");
    assert!(bench.ok("pool status tank").contains("trim done"));
    bench.ok("pool trim tank a");
    bench.ok("pool trim tank --cancel");
    assert!(bench.fails("pool trim tank b", 3).contains('b'));
    assert!(bench.ok("pool scrub tank --wait").contains("0 wrong copies"));
    bench.ok("pool check tank");
    bench.ok("pool export tank");
    bench.ok("pool import tank");
    assert_eq!(bench.ok("pool trim tank --cancel"), "nothing was running\n");
    assert!(bench.ok("pool scrub tank --wait").contains("0 wrong copies"));
}

#[test]
fn autotrim_discards_what_is_freed() {
    let bench = bench();
    assert!(bench.fails("pool set autotrim=maybe tank", 3).contains("autotrim"));
    bench.ok("pool set autotrim=on tank");
    bench.ok("pool export tank -f");
    bench.ok("pool import tank");
    assert_eq!(bench.ok("pool get autotrim tank -H -o value,source"), "on\tlocal\n");
    bench.ok("dataset destroy tank/old");
    let before = taken(&bench, "a");
    let begun = Instant::now();
    while taken(&bench, "a") + (20 << 20) > before {
        assert!(begun.elapsed() < Duration::from_secs(60), "{before} {}", taken(&bench, "a"));
        std::thread::sleep(Duration::from_millis(100));
        bench.ok("pool sync tank");
    }
    assert!(bench.ok("pool scrub tank --wait").contains("0 wrong copies"));
}
