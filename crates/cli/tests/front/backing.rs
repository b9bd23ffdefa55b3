//! The directory is full, read-only, or changed past the cache; the mount is in use when it is to end.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::Signal;

use crate::mapping::Mapping;
use crate::{Mounted, folder, mounted};

fn mount_tool(arguments: &[&str], files: &Mounted) {
    let mut command = Command::new("mount");
    assert!(command.args(arguments).arg(files.bench.path("dir")).status().unwrap().success());
}

/// A directory on a small file system of its own, until this is dropped.
struct Small(Mounted);

impl Drop for Small {
    fn drop(&mut self) {
        for name in ["at", "dir"] {
            // What is not mounted any more is not unmounted.
            let path = self.0.bench.path(name);
            let _ = Command::new("umount").arg("-l").arg(path).stderr(std::process::Stdio::null()).status();
        }
    }
}

fn small() -> Option<Small> {
    let files = folder()?;
    mount_tool(&["-t", "tmpfs", "-o", "size=1M,mode=777", "small"], &files);
    Some(Small(files))
}

#[test]
fn a_full_directory_keeps_what_was_acknowledged_in_pm_and_says_so() {
    let Some(mut small) = small() else { return };
    let files = &mut small.0;
    fs::write(files.below("filler"), vec![1; 900 << 10]).unwrap();
    files.mount("");
    let data: Vec<u8> = (0..500_000_u32).flat_map(|n| n.to_le_bytes()).collect();
    fs::write(files.at("a"), &data).unwrap();
    let said = files.bench.fails("responder flush pm", 5);
    assert!(said.contains("No space left"), "{said}");
    let status = files.bench.run("responder status pm");
    let text = String::from_utf8(status.stdout).unwrap();
    assert_eq!(status.status.code(), Some(1));
    assert!(text.contains("cannot be flushed") && text.contains("No space left"), "{text}");
    assert!(text.contains(" a (inode "), "{text}");
    assert_eq!(fs::read(files.at("a")).unwrap(), data);
    // The region holds 8 MiB: what does not fit any more is refused.
    let file = File::options().write(true).open(files.at("a")).unwrap();
    let refused = (0..16).find_map(|at| file.write_all_at(&vec![2; 1 << 20], (at + 2) << 20).err());
    assert_eq!(refused.unwrap().raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    drop(file);
    assert_eq!(fs::read(files.at("a")).unwrap()[..data.len()], data);
    files.signal(Signal::KILL);
    files.ended();
    let status = String::from_utf8(files.bench.run("responder status pm").stdout).unwrap();
    assert!(status.contains(" of a (inode ") && status.contains("bytes free"), "{status}");
    let said = files.bench.fails("responder recover pm", 5);
    assert!(said.contains("No space left") && said.contains("dir/a ("), "{said}");
    assert!(files.bench.fails("responder detach pm", 5).contains("No space left"));
    // It can be mounted, and has everything; without the filler there is room for what it started with.
    files.mount("");
    assert_eq!(fs::read(files.at("a")).unwrap()[..data.len()], data);
    fs::remove_file(files.at("filler")).unwrap();
    File::options().write(true).open(files.at("a")).unwrap().set_len(900 << 10).unwrap();
    let ended = files.interrupted();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(fs::read(files.below("a")).unwrap(), data[..900 << 10]);
}

/// Each write says how much of it is there, and one that fails has changed nothing.
#[test]
fn a_write_to_a_full_directory_says_how_much_of_it_is_there() {
    for protocol in ["fr", "melov", "pmal", "log"] {
        let Some(mut small) = small() else { return };
        let files = &mut small.0;
        fs::write(files.below("filler"), vec![1; 500 << 10]).unwrap();
        files.mount(&format!("--protocol {protocol}"));
        let file = File::options().create_new(true).write(true).open(files.at("a")).unwrap();
        // Several requests of whole chunks: PMAL flushes a chunk before it is written to again, which fails.
        let data: Vec<u8> = (0..586 * 1024_u32).flat_map(|n| n.to_le_bytes()).collect();
        let (mut whole, mut short) = (Vec::new(), 0);
        let refused = loop {
            match file.write_at(&data, whole.len() as u64) {
                Ok(done) => {
                    whole.extend_from_slice(&data[..done]);
                    short += u32::from(done < data.len());
                }
                Err(error) => break error,
            }
            assert_eq!(file.metadata().unwrap().len(), whole.len() as u64, "{protocol}");
            assert!(whole.len() < 64 << 20, "{protocol}: the directory is full");
        };
        assert_eq!(refused.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "{protocol}");
        assert!(short > 0, "{protocol}: no write was made in part");
        assert_eq!(file.metadata().unwrap().len(), whole.len() as u64, "{protocol}");
        assert!(fs::read(files.at("a")).unwrap() == whole, "{protocol}: other bytes");
        fs::remove_file(files.below("filler")).unwrap();
        mount_tool(&["-o", "remount,size=64M"], files);
        drop(file);
        let ended = files.interrupted();
        assert!(ended.status.success(), "{ended:?}");
        assert!(fs::read(files.below("a")).unwrap() == whole, "{protocol}: other bytes below");
    }
}

#[test]
fn a_directory_that_became_read_only_gets_what_was_acknowledged_later() {
    let Some(mut small) = small() else { return };
    let files = &mut small.0;
    files.mount("");
    fs::write(files.at("a"), "acknowledged").unwrap();
    files.signal(Signal::KILL);
    files.ended();
    Command::new("umount").arg("-l").arg(files.bench.path("at")).status().unwrap();
    mount_tool(&["-o", "remount,ro"], files);
    files.bench.fails("responder recover pm", 7);
    mount_tool(&["-o", "remount,rw"], files);
    files.bench.ok("responder recover pm");
    assert_eq!(fs::read(files.below("a")).unwrap(), b"acknowledged");
}

#[test]
fn changes_past_the_mount_are_seen_once_names_are_looked_up_again() {
    let Some(mut files) = mounted() else { return };
    fs::write(files.at("renamed"), "by the cache").unwrap();
    fs::write(files.at("removed"), "by the cache").unwrap();
    fs::write(files.below("made"), "past it").unwrap();
    fs::rename(files.below("renamed"), files.below("other")).unwrap();
    fs::remove_file(files.below("removed")).unwrap();
    assert_eq!(fs::read(files.at("made")).unwrap(), b"past it");
    assert_eq!(fs::read(files.at("other")).unwrap(), b"by the cache");
    assert!(files.interrupted().status.success());
    assert_eq!(fs::read(files.below("other")).unwrap(), b"by the cache");
    assert!(!files.below("removed").exists() && !files.below("renamed").exists());
}

/// It is to be unmounted, and says that it is in use.
fn interrupted_in_use(files: &mut Mounted) {
    files.signal(Signal::INT);
    let mut stderr = files.server().stderr.take().unwrap();
    let mut said = String::new();
    while !said.contains("in use") {
        let mut byte = [0];
        assert_eq!(std::io::Read::read(&mut stderr, &mut byte).unwrap(), 1, "{said}");
        said.push(char::from(byte[0]));
    }
    files.server().stderr = Some(stderr);
}

#[test]
fn a_mount_in_use_stays_until_it_is_asked_for_twice() {
    let Some(mut files) = mounted() else { return };
    let file = File::create(files.at("a")).unwrap();
    file.write_all_at(b"text", 0).unwrap();
    interrupted_in_use(&mut files);
    file.write_all_at(b"more", 4).unwrap();
    files.signal(Signal::TERM);
    let ended = files.ended_soon();
    assert!(ended.status.success(), "{ended:?}");
    assert!(file.write_all_at(b"late", 8).is_err());
    assert_eq!(fs::read(files.below("a")).unwrap(), b"textmore");
}

#[test]
fn a_mount_in_use_ends_with_its_last_user() {
    let Some(mut files) = mounted() else { return };
    let file = File::create(files.at("a")).unwrap();
    interrupted_in_use(&mut files);
    file.write_all_at(b"late", 0).unwrap();
    drop(file);
    let ended = files.ended_soon();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(fs::read(files.below("a")).unwrap(), b"late");
}

/// Nobody writes the rest of a page of a mapping.
#[test]
fn pages_of_a_mapping_that_do_not_fit_are_an_error() {
    let Some(mut small) = small() else { return };
    let files = &mut small.0;
    files.mount("--protocol log");
    let file = File::options().create_new(true).read(true).write(true).open(files.at("a")).unwrap();
    // A hole, for which there will be no room.
    file.set_len(1 << 20).unwrap();
    fs::write(files.below("filler"), vec![1; 900 << 10]).unwrap();
    let mapping = Mapping::of(&file, 1 << 20);
    mapping.write(0, &vec![7; 1 << 20]);
    assert!(mapping.sync().and_then(|()| rustix::fs::fsync(&file)).is_err());
    drop(mapping);
    drop(file);
    fs::remove_file(files.below("filler")).unwrap();
}
