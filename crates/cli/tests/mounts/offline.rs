//! `fastness fs check` of a pool that does not run.

use std::fs;
use std::path::PathBuf;

use crate::mounted;

/// The devices and the region of a pool.
fn media(folder: &std::path::Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut media: Vec<_> = files.filter(|path| path.is_file()).collect();
    media.sort();
    media.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn a_pool_that_does_not_run_is_checked_and_left_as_it_is() {
    let Some(files) = mounted("log pm --emulate-pm --pm-size 16M") else { return };
    fs::create_dir(files.path("folder")).unwrap();
    (0..20).for_each(|n| fs::write(files.path(&format!("folder/{n}")), "text").unwrap());
    files.bench.ok("pool sync tank");
    let running = files.bench.json("fs check tank/home");
    assert_eq!(running["offline"], serde_json::Value::Null);
    files.kill();
    // After the last txg, and so in the log alone.
    for (ends, says) in [("killed", "was not looked at"), ("exported", "its log has nothing since then")] {
        if ends == "exported" {
            files.bench.ok("pool import tank");
            files.bench.ok("pool export tank");
        }
        let before = media(files.bench.dir.path());
        assert!(!before.is_empty());
        let text = files.bench.ok("fs check tank/home");
        assert!(text.contains("does not run") && text.contains(says), "{ends}: {text}");
        assert!(text.contains("20 files") && text.contains("nothing is wrong"), "{ends}: {text}");
        let found = files.bench.json("fs check tank/home");
        assert_eq!(found["offline"]["leaves_log_out"], ends == "killed");
        for field in ["files", "directories", "names", "findings_count"] {
            assert_eq!(found[field], running[field], "{ends}: {field}");
        }
        assert!(media(files.bench.dir.path()) == before, "{ends}: something was changed");
    }
    let refused = files.bench.fails("fs check tank/none", 3);
    assert!(refused.contains("tank/none"), "{refused}");
}
