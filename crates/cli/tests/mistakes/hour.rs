//! Sixty and more commands that are wrong or dangerous, after which everything is as it was.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;

use fastness_nbd::Client;

use crate::support::Bench;
use crate::table::MISTAKES;

const VOLUME_BYTES: usize = 8 << 20;

fn pattern(seed: u32) -> Vec<u8> {
    (0..VOLUME_BYTES as u32).map(|at| (at / 512 * seed + at % 241) as u8).collect()
}

/// Serves the volume, and writes its pattern.
fn fill(bench: &Bench, volume: &str, socket: &str, seed: u32) -> Client {
    bench.ok(&format!("volume create {volume} 8M"));
    bench.ok(&format!("volume serve {volume} --socket {socket}"));
    let mut client = bench.client(socket, volume);
    client.write(0, &pattern(seed), false).unwrap();
    client.flush().unwrap();
    client
}

fn holds(client: &mut Client, seed: u32) {
    assert!(client.read(0, VOLUME_BYTES as u32).unwrap() == pattern(seed), "a volume has changed");
}

/// `tank`: a mirror of `a` and `b`, with a served volume that a client uses. `pond`: on `p`, with its log in
/// `pl`. `lake`, exported, on `c`; `gone`, destroyed, on `g`; `half`, exported, a mirror without its other
/// side. Other files: `blank1` to `blank3`, `ext4`, `small`, and `region`, the log of a pool that is no more.
fn world(bench: &Bench) -> Client {
    bench.ok("pool create lake c --file-size 64M");
    drop(fill(bench, "lake/v", "lake.sock", 7));
    bench.ok("pool export lake");
    bench.ok("pool create gone g --file-size 64M");
    drop(fill(bench, "gone/v", "gone.sock", 11));
    bench.ok("pool destroy gone");
    bench.ok("pool create half mirror half1 half2 --file-size 64M");
    bench.ok("pool export half");
    bench.ok("pool create old o --file-size 64M log region --emulate-pm --pm-size 16M");
    bench.ok("pool export old");
    for name in ["half2", "o"] {
        fs::remove_file(bench.path(name)).unwrap();
    }
    bench.ok("pool create pond p --file-size 64M log pl --emulate-pm --pm-size 16M");
    drop(fill(bench, "pond/v", "pond.sock", 13));
    bench.ok("pool create tank mirror a b --file-size 96M");
    bench.ok("dataset create -p tank/d/e");
    bench.ok("volume create tank/w 8M");
    for name in ["blank1", "blank2", "blank3", "ext4"] {
        fs::File::create(bench.path(name)).unwrap().set_len(96 << 20).unwrap();
    }
    let mut bytes = vec![0; 4096];
    bytes[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
    fs::write(bench.path("small"), vec![1; 1 << 20]).unwrap();
    std::os::unix::fs::FileExt::write_all_at(
        &fs::File::options().write(true).open(bench.path("ext4")).unwrap(),
        &bytes,
        0,
    )
    .unwrap();
    fill(bench, "tank/v", "v.sock", 17)
}

/// Names of what is there, and the contents of what no running pool writes to.
fn files(bench: &Bench) -> BTreeMap<String, Option<Vec<u8>>> {
    const BUSY: [&str; 4] = ["a", "b", "p", "pl"];
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(bench.dir.path()).unwrap() {
        let (name, path) = {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), entry.path())
        };
        if name.ends_with(".lock") {
            continue;
        }
        let is_quiet = path.is_file() && !BUSY.contains(&&*name);
        found.insert(name, is_quiet.then(|| fs::read(&path).unwrap()));
    }
    found
}

#[test]
fn an_hour_of_mistakes_ends_with_a_clear_answer_each_and_nothing_lost() {
    assert!(MISTAKES.len() >= 60);
    let bench = Bench::new();
    let mut client = world(&bench);
    let guid = bench.json("pool status tank")[0]["guid"].as_str().unwrap().to_owned();
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let number = port.local_addr().unwrap().port().to_string();
    // What is used does not change any more.
    bench.ok("pool sync tank");
    bench.ok("pool sync pond");
    let (before, datasets) = (files(&bench), bench.ok("dataset get all tank tank/d tank/d/e tank/v tank/w"));
    let served = bench.ok("volume list");
    let mut wrong = Vec::new();
    for (line, code, parts) in MISTAKES {
        let line = line.replace("{port}", &number).replace("{tank}", &guid);
        let output = bench.run(&line);
        let said = String::from_utf8_lossy(&output.stderr);
        let says_all = parts.iter().all(|part| said.contains(part));
        if output.status.code() != Some(*code) || !says_all {
            wrong.push(format!("{line}: {:?} instead of {code} {parts:?}: {said}", output.status.code()));
        }
        for name in ["tank", "pond"] {
            if bench.run(&format!("pool status {name}")).status.code() != Some(0) {
                wrong.push(format!("{line}: pool {name} is not online any more"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), MISTAKES.len(), wrong.join("\n"));
    // Nothing was made, nothing was changed.
    let after = files(&bench);
    let names = |files: &BTreeMap<String, _>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&after), names(&before));
    let changed = before.iter().filter(|(name, bytes)| after[*name] != **bytes).map(|(name, _)| name);
    let changed: Vec<_> = changed.collect();
    assert!(changed.is_empty(), "{changed:?}");
    assert_eq!(bench.ok("dataset get all tank tank/d tank/d/e tank/v tank/w"), datasets);
    assert_eq!(bench.ok("volume list"), served);
    // And nothing is lost: the same client, without having connected again.
    holds(&mut client, 17);
    drop(client);
    bench.ok("pool scrub tank --wait");
    bench.ok("pool import lake -d .");
    bench.ok("pool import -D gone -d .");
    for (pool, socket, seed) in [
        ("tank", "v.sock", 17),
        ("lake", "lake.sock", 7),
        ("gone", "gone.sock", 11),
        ("pond", "pond.sock", 13),
    ] {
        for _ in 0..2 {
            holds(&mut bench.client(socket, &format!("{pool}/v")), seed);
            assert_eq!(bench.json(&format!("pool check {pool}"))["is_clean"], true);
            bench.ok(&format!("pool export {pool}"));
            bench.ok(&format!("pool import {pool} -d ."));
        }
        bench.ok(&format!("pool export {pool}"));
    }
}
