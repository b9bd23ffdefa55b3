//! Trees as text: equal states are equal text, whatever is in them.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::time::{Duration, UNIX_EPOCH};

use fastness_agent::clock::{RECOVERY_BEGIN_S, TEST_BEGIN_S};
use fastness_agent::dump::{Fields, content, dump};
use proptest::prelude::*;
use serde_json::{Value, json};

const STABLE: Fields = Fields { times: false, ino: false, blocks: false };

#[test]
fn a_tree_is_printed_with_all_that_a_user_sees() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::create_dir(root.join("b")).unwrap();
    fs::write(root.join("b/zeroes"), [0; 4096]).unwrap();
    fs::write(root.join("a"), "test\n").unwrap();
    fs::write(root.join(std::ffi::OsStr::from_bytes(b"odd\xff\\name")), b"\x01\x02").unwrap();
    fs::write(root.join("large"), vec![b'x'; 100_000]).unwrap();
    symlink("nowhere", root.join("link")).unwrap();
    fs::hard_link(root.join("a"), root.join("b/a")).unwrap();
    let first = dump(root, STABLE);
    assert_eq!(first, dump(root, STABLE));
    assert_eq!(first.errors, 0);
    let tree: Value = serde_json::from_str(&first.text).unwrap();
    let keys: Vec<_> = tree.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["/", "/a", "/b", "/b/a", "/b/zeroes", "/large", "/link", "/odd\\xff\\\\name"]);
    assert_eq!(tree["/a"]["content"], "test\n");
    assert_eq!(
        (&tree["/a"]["nlink"], &tree["/a"]["type"], &tree["/a"]["size"]),
        (&json!(2), &json!("file"), &json!(5))
    );
    assert_eq!(tree["/b/zeroes"]["content"], json!([{"byte": "00", "count": 4096}]));
    assert_eq!(tree["/odd\\xff\\\\name"]["content"], json!([{"hex": "0102"}]));
    assert_eq!(tree["/large"]["content"]["bytes"], 100_000);
    assert_eq!(tree["/large"]["content"]["blake3"], blake3::hash(&[b'x'; 100_000]).to_hex().as_str());
    assert_eq!(tree["/link"]["target"], "nowhere");
    assert!(tree["/a"].get("ino").is_none() && tree["/a"].get("mtime").is_none());
    let full: Value = serde_json::from_str(&dump(root, Fields::default()).text).unwrap();
    assert_eq!(full["/a"]["ino"], full["/b/a"]["ino"]);
    assert!(full["/a"]["mtime"].as_str().unwrap().split_once('.').unwrap().1.len() == 9);
    assert!(full["/a"]["blocks"].is_number());
}

#[test]
fn what_cannot_be_read_is_an_entry_and_counted() {
    let missing = dump("/nowhere/at/all".as_ref(), STABLE);
    assert_eq!(missing.errors, 1);
    assert_eq!(
        serde_json::from_str::<Value>(&missing.text).unwrap(),
        json!({"/": {"error": "ENOENT at lstat"}})
    );
    let folder = tempfile::tempdir().unwrap();
    let mut deep = folder.path().to_owned();
    for _ in 0..70 {
        deep.push("d");
        fs::create_dir(&deep).unwrap();
    }
    let dump = dump(folder.path(), STABLE);
    assert_eq!(dump.errors, 1);
    assert!(dump.text.contains("more than 64 directories deep"));
}

#[test]
fn contents_are_short_and_readable() {
    for (bytes, expected) in [
        (&b""[..], json!("")),
        (b"a\tb\n", json!("a\tb\n")),
        ("grün".as_bytes(), json!("grün")),
        (b"\x00", json!([{"hex": "00"}])),
        (&[b'a'; 32], json!([{"byte": "61", "count": 32}])),
        (&[b'a'; 31], json!("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")),
    ] {
        assert_eq!(content(bytes), expected);
    }
    let mixed = [b"head".to_vec(), vec![0; 100], b"\xff".to_vec(), vec![1; 40], b"tail".to_vec()].concat();
    assert_eq!(
        content(&mixed),
        json!(["head", {"byte": "00", "count": 100}, {"hex": "ff"}, {"byte": "01", "count": 40}, "tail"])
    );
}

/// The bytes that a content stands for.
fn bytes_of(value: &Value) -> Vec<u8> {
    let hex = |text: &Value| -> Vec<u8> {
        let digits = text.as_str().unwrap();
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
    };
    match value {
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Array(pieces) => pieces.iter().flat_map(bytes_of).collect(),
        piece if piece.get("hex").is_some() => hex(&piece["hex"]),
        run => vec![hex(&run["byte"])[0]; usize::try_from(run["count"].as_u64().unwrap()).unwrap()],
    }
}

proptest! {
    #[test]
    fn a_content_stands_for_its_bytes(pieces in prop::collection::vec((any::<u8>(), 1..50usize), 0..20)) {
        let bytes: Vec<u8> = pieces.into_iter().flat_map(|(byte, count)| vec![byte; count]).collect();
        prop_assert_eq!(bytes_of(&content(&bytes)), bytes);
    }
}

#[test]
fn what_the_clock_of_a_recovery_wrote_is_one_word() {
    let folder = tempfile::tempdir().unwrap();
    let shown = |mtime_s: i64, nanoseconds: u32| {
        let path = folder.path().join("file");
        let time = UNIX_EPOCH + Duration::new(mtime_s.cast_unsigned(), nanoseconds);
        fs::File::create(path).unwrap().set_times(fs::FileTimes::new().set_modified(time)).unwrap();
        let tree: Value = serde_json::from_str(&dump(folder.path(), Fields::default()).text).unwrap();
        tree["/file"]["mtime"].as_str().unwrap().to_owned()
    };
    assert_eq!(shown(RECOVERY_BEGIN_S, 0), "recovery");
    assert_eq!(shown(RECOVERY_BEGIN_S + 30, 5), "recovery", "recoveries take as long as they take");
    assert_eq!(shown(RECOVERY_BEGIN_S - 1, 999_999_999), "2114380799.999999999");
    assert_eq!(shown(RECOVERY_BEGIN_S + 86_400, 1), "2114467200.000000001", "no recovery is that long");
    assert_eq!(shown(TEST_BEGIN_S, 1), "1577836800.000000001");
}
