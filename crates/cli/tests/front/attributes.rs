//! Extended attributes: those of the directory's files.

use std::fs::{self, File};
use std::path::Path;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::mounted;
use crate::permissions::as_user;

fn get(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 70_000];
    let len = rustix::fs::getxattr(path, name, value.as_mut_slice())?;
    value.truncate(len);
    Ok(value)
}

fn names(path: &Path) -> Vec<String> {
    let mut list = vec![0; 70_000];
    let len = rustix::fs::listxattr(path, list.as_mut_slice()).unwrap();
    let names = list[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut names: Vec<_> = names.map(|name| String::from_utf8(name.to_vec()).unwrap()).collect();
    names.sort();
    names
}

#[test]
fn attributes_are_those_of_the_directory_and_survive() {
    let Some(mut files) = mounted() else { return };
    let long = format!("user.{}", "n".repeat(250));
    let values =
        [("user.a", &b"value"[..]), (&long, &[7; 300]), ("trusted.t", b"\0\xff"), ("user.empty", b"")];
    for (name, kind) in [("file", "a file"), ("folder", "a directory")] {
        let path = files.at(name);
        if name == "file" {
            fs::write(&path, "text").unwrap();
        } else {
            fs::create_dir(&path).unwrap();
        }
        for (attribute, value) in values {
            rustix::fs::setxattr(&path, attribute, value, XattrFlags::CREATE).unwrap();
        }
        let again = rustix::fs::setxattr(&path, "user.a", b"", XattrFlags::CREATE);
        let missing = rustix::fs::setxattr(&path, "user.b", b"", XattrFlags::REPLACE);
        assert_eq!((again, missing), (Err(Errno::EXIST), Err(Errno::NODATA)), "{kind}");
        rustix::fs::setxattr(&path, "user.gone", b"1", XattrFlags::empty()).unwrap();
        rustix::fs::removexattr(&path, "user.gone").unwrap();
        assert_eq!(rustix::fs::removexattr(&path, "user.gone"), Err(Errno::NODATA), "{kind}");
    }
    let check = |path: &Path| {
        for (attribute, value) in values {
            assert_eq!(get(path, attribute).unwrap(), value, "{attribute} of {}", path.display());
            let len = rustix::fs::getxattr_query(path, attribute).unwrap();
            assert_eq!(len, value.len());
        }
        assert_eq!(get(path, "user.gone"), Err(Errno::NODATA));
        assert_eq!(names(path), ["trusted.t", "user.a", "user.empty", &long]);
    };
    for name in ["file", "folder"] {
        check(&files.at(name));
        let mut short = [0; 2];
        assert_eq!(rustix::fs::getxattr(files.at(name), "user.a", &mut short), Err(Errno::RANGE));
        // Only root is told of the administrator's.
        assert_eq!(as_user(|| names(&files.at(name))), ["user.a", "user.empty", &long]);
    }
    let open = File::open(files.at("file")).unwrap();
    let mut value = [0; 9];
    assert_eq!(rustix::fs::fgetxattr(&open, "user.a", &mut value), Ok(5));
    drop(open);
    files.kill_and_recover();
    check(&files.below("file"));
    check(&files.below("folder"));
}

#[test]
fn copies_keep_attributes() {
    let Some(files) = mounted() else { return };
    fs::write(files.at("a"), "text").unwrap();
    rustix::fs::setxattr(files.at("a"), "user.a", b"value", XattrFlags::empty()).unwrap();
    let copy =
        std::process::Command::new("cp").arg("-a").args([files.at("a"), files.at("b")]).output().unwrap();
    assert!(copy.status.success(), "{copy:?}");
    assert_eq!(get(&files.below("b"), "user.a").unwrap(), b"value");
}
