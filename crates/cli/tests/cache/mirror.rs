//! A cache on two regions: either may be lost, damaged, old or moved while it is down; sides join and leave.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;

use crate::plan::Rng;
use crate::{Served, killed_again_and_again};

const BOTH: [&str; 2] = ["pm", "pm2"];

/// What `status` says, and its exit code.
fn status(served: &Served, region: &str) -> (Value, Option<i32>) {
    let said = served.bench.run(&format!("cache status {region} --json"));
    let report = serde_json::from_slice(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    (report, said.status.code())
}

/// Which sides are in use.
fn in_use(report: &Value) -> Vec<bool> {
    report["sides"].as_array().unwrap().iter().map(|side| side["out"].is_null()).collect()
}

fn scribble(path: &Path, start: u64, bytes: &[u8]) {
    fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, start).unwrap();
}

/// Cut short, removed, scribbled over, or replaced by an older copy of itself, while the cache is down; the
/// next process goes on with the other one, until a new region takes the place of what is left.
#[test]
fn a_killed_mirror_that_loses_a_side_each_time_loses_nothing() {
    let (mut number, mut losses) = (0, 0);
    killed_again_and_again("--pm pm --pm pm2 --size 8M", "--flush-ms 5000", 3, |served, rng: &mut Rng| {
        let (report, _) = status(served, served.region);
        let used = in_use(&report);
        let lost = number % 2;
        if used == [true, true] {
            let path = served.bench.path(BOTH[lost]);
            match number / 2 % 4 {
                0 => fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(70_000).unwrap(),
                1 => scribble(&path, 0, &vec![0x5a; 8 << 20]),
                2 => scribble(&path, 16384, &vec![0xa5; 4 << 20]),
                _ => fs::remove_file(&path).unwrap(),
            }
            (number, losses) = (number + 1, losses + 1);
            served.region = BOTH[1 - lost];
        } else if rng.percent(70) {
            let gone = usize::from(used[0]);
            let _ = fs::remove_file(served.bench.path(BOTH[gone]));
            served.bench.ok(&format!("cache attach {} {}", BOTH[1 - gone], BOTH[gone]));
            let (report, code) = status(served, BOTH[gone]);
            assert_eq!((in_use(&report), code), (vec![true; 2], Some(0)));
        }
    });
    assert!(losses > 1, "{losses} sides were lost");
}

#[test]
fn the_life_of_a_mirror() {
    let mut served = Served::with("--pm pm --pm pm2 --size 4M");
    served.serve("--flush-ms 600000");
    served.client().write(8192, &[7; 4096], false).unwrap();
    // Either region leads to the process.
    for region in BOTH {
        let (report, code) = status(&served, region);
        assert_eq!((in_use(&report), &report["dirty_blocks"], code), (vec![true; 2], &1.into(), Some(0)));
        assert!(served.bench.fails(&format!("cache detach {region}"), 4).contains("served"));
    }
    let shown = served.bench.ok("cache status pm");
    assert!(shown.contains("first side") && shown.contains("pm2: in use"), "{shown}");
    served.kill();

    // The second region is gone: the origin's mark tells that it has nothing newer.
    fs::rename(served.bench.path("pm2"), served.bench.path("elsewhere")).unwrap();
    let (report, code) = status(&served, "pm");
    assert_eq!((in_use(&report), code), (vec![true, false], Some(1)));
    assert!(report["sides"][1]["region"].as_str().unwrap().ends_with("pm2"));
    // It has only moved.
    let said = served.bench.fails("cache flush pm --pm nowhere", 3);
    assert!(said.contains("nowhere"), "{said}");
    let (report, code) = status(&served, "pm --pm elsewhere");
    assert_eq!((in_use(&report), &report["dirty_blocks"], code), (vec![true; 2], &1.into(), Some(0)));
    assert!(served.bench.ok("cache flush elsewhere").contains("1 changes in the log"));
    assert_eq!(fs::read(served.origin()).unwrap()[8192], 7);
    assert!(status(&served, "pm").0["sides"][1]["region"].as_str().unwrap().ends_with("elsewhere"));

    // Gone for good: the cache goes on, and says so.
    fs::rename(served.bench.path("elsewhere"), served.bench.path("old")).unwrap();
    served.serve("");
    served.client().write(8192, &[8; 4096], false).unwrap();
    let (report, code) = status(&served, "pm");
    assert_eq!((in_use(&report), code), (vec![true, false], Some(1)));
    assert_eq!(served.signal("-TERM"), Some(0));
    // What comes back is not used, neither alone nor beside the other one.
    fs::rename(served.bench.path("pm"), served.bench.path("hidden")).unwrap();
    let said = served.bench.fails("cache serve old", 3);
    assert!(said.contains("out of date"), "{said}");
    fs::rename(served.bench.path("hidden"), served.bench.path("pm")).unwrap();
    let said = served.bench.ok_or_found("cache status old");
    assert!(said.contains("missed writes"), "{said}");

    // What was a side takes the place of the one that is out, whatever it has.
    assert!(served.bench.fails("cache attach pm pm", 3).contains("both sides"));
    served.bench.ok("cache attach pm old");
    assert!(served.bench.fails("cache attach pm third", 3).contains("two sides already"));
    assert!(!served.bench.path("third").exists());
    fs::write(served.bench.path("something"), vec![9; 4 << 20]).unwrap();
    served.bench.ok("cache detach-side old pm");
    assert!(served.bench.fails("cache status pm", 3).contains("no cache"));
    assert!(served.bench.fails("cache attach old something", 3).contains("not empty"));
    assert!(served.bench.fails("cache detach-side old pm", 3).contains("no cache"));
    assert!(status(&served, "old").0["sides"].as_array().unwrap().is_empty());
    served.region = "old";
    served.serve("");
    assert_eq!(served.client().read(8192, 4096).unwrap(), [8; 4096]);
    served.client().write(0, &[1; 512], false).unwrap();
    assert_eq!(served.signal("-TERM"), Some(0));
    served.bench.ok("cache detach old");
}

#[test]
fn mistakes_with_two_regions() {
    let served = Served::with("--pm pm --pm pm2 --size 4M");
    let bench = &served.bench;
    fs::write(bench.path("disk"), vec![0; 1 << 20]).unwrap();
    assert!(bench.fails("cache create --pm a --pm a --size 4M --origin disk", 3).contains("both sides"));
    assert!(
        bench.fails("cache create --pm a --pm b --pm c --size 4M --origin disk", 3).contains("once or twice")
    );
    assert!(bench.fails("cache create --pm a --pm pm2 --size 4M --origin disk", 3).contains("already"));
    assert!(!bench.path("a").exists() && !bench.path("c").exists(), "nothing is left");
    bench.ok("cache create --pm a --pm b --size 4M --origin disk");
    for line in ["cache flush pm --pm b", "cache detach-side pm b"] {
        assert!(bench.fails(line, 3).contains("is no side of the cache in"), "{line}");
    }
    assert_eq!(in_use(&status(&served, "pm").0), [true; 2], "nothing has changed");
    assert!(bench.fails("cache flush pm --pm disk", 3).contains("no cache"));
    fs::remove_file(bench.path("a")).unwrap();
    // The one that is left is enough, by its own name.
    assert!(bench.fails("cache flush a", 3).contains("a"));
    assert_eq!(bench.run("cache flush b").status.code(), Some(1), "it says that a side is out");
}
