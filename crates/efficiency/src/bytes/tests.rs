use super::*;

use std::fs;

fn fake(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let machine = Machine::testing(dir.path(), dir.path());
    (dir, machine)
}

#[test]
fn bytes_of_our_own_threads_are_not_the_commands() {
    let io = |read: u64, written: u64| format!("rchar: {read}\nwchar: {written}\nsyscr: 1\nsyscw: 1\n");
    let (_dir, machine) = fake(&[
        ("self/io", &io(1000, 700)),
        ("self/task/10/io", &io(300, 50)),
        ("self/task/11/io", &io(200, 50)),
    ]);
    let count = |counted| ByteSource::Calls(counted).read(&machine).unwrap();
    assert_eq!(count(Counted::Written), Some(600));
    assert_eq!(count(Counted::Read), Some(500));
    assert_eq!(count(Counted::Both), Some(1100));
}

#[test]
fn devices_are_added_up() {
    let stats = "   8       0 sda 10 0 100 5 20 0 300 7 0 1 1\n   8       1 sda1 1 0 2 5 2 0 4 7 0 1 1\n";
    let (_dir, machine) = fake(&[("diskstats", stats)]);
    let of = |names: &[&str]| ByteSource::Devices(names.iter().map(ToString::to_string).collect());
    assert_eq!(of(&["sda"]).read(&machine).unwrap(), Some(400 * 512));
    assert_eq!(of(&["sda1", "sda"]).read(&machine).unwrap(), Some(406 * 512));
    let error = of(&["sda", "sdz"]).read(&machine).unwrap_err();
    assert!(matches!(&error, CostError::NoDevice { name, .. } if name == "sdz"), "{error}");
    assert_eq!(error.kind(), fastness_base::ErrorKind::Invalid);
}

#[test]
fn the_last_whole_line_of_a_report_counts() {
    let (dir, machine) = fake(&[("report", "")]);
    let path = dir.path().join("report");
    let report = ByteSource::Report(path.clone());
    let long = format!("{}\n77\n", "1\n".repeat(1000));
    for (text, bytes) in [("", 0), ("12", 0), ("12\n", 12), ("12\n 345 \n6", 345), (&*long, 77)] {
        fs::write(&path, text).unwrap();
        assert_eq!(report.read(&machine).unwrap(), Some(bytes), "{text}");
    }
    for text in ["many\n", "1 2\n", "-1\n", "\n", "99999999999999999999\n", "\0\n"] {
        fs::write(&path, text).unwrap();
        let error = report.read(&machine).unwrap_err();
        assert_eq!(error.kind(), fastness_base::ErrorKind::Corrupt, "{text}");
    }
    fs::remove_file(&path).unwrap();
    assert!(report.read(&machine).is_err());
}

#[test]
fn counters_that_are_not_there_are_errors_with_their_place() {
    let (_dir, machine) = fake(&[("self/io", "syscr: 1\n"), ("self/task/x", "")]);
    let error = ByteSource::Calls(Counted::Both).read(&machine).unwrap_err();
    assert!(error.to_string().ends_with("self/io has no count of bytes"), "{error}");
    let (_dir, machine) = fake(&[("diskstats", "8 0 sda 1 1\n")]);
    let error = ByteSource::Devices(vec!["sda".to_owned()]).read(&machine).unwrap_err();
    assert_eq!(error.kind(), fastness_base::ErrorKind::Corrupt);
}
