//! The programs of the source's table, in its order.

use fastness_zpl::{
    Allocate, FileSystem, Ino, NewFile, NewTime, RenameHow, SetAttributes, Time, WriteHow, mode,
};

use crate::support::{directory, file};
use crate::{Program, Step, step};

fn create(name: &'static [u8]) -> Step {
    step(move |fs| {
        fs.make(Ino::ROOT, name, &file(0o644)).unwrap();
    })
}

fn make_directory(name: &'static [u8]) -> Step {
    step(move |fs| {
        fs.make(Ino::ROOT, name, &directory(0o755)).unwrap();
    })
}

fn find(fs: &FileSystem, name: &[u8]) -> Ino {
    fs.find(Ino::ROOT, name).unwrap()
}

fn write(name: &'static [u8], offset: u64, data: &'static [u8]) -> Step {
    step(move |fs| {
        fs.write(find(fs, name), offset, data, WriteHow::default()).unwrap();
    })
}

fn set(name: &'static [u8], set: SetAttributes) -> Step {
    step(move |fs| {
        fs.set_attributes(find(fs, name), &set).unwrap();
    })
}

fn rename(from: &'static [u8], to: &'static [u8]) -> Step {
    step(move |fs| {
        if let Some(gone) = fs.rename((Ino::ROOT, from), (Ino::ROOT, to), RenameHow::Replace).unwrap() {
            fs.reap(gone).unwrap();
        }
    })
}

fn unlink(name: &'static [u8]) -> Step {
    step(move |fs| {
        if let Some(gone) = fs.unlink(Ino::ROOT, name).unwrap() {
            fs.reap(gone).unwrap();
        }
    })
}

fn at(seconds: i64) -> Option<NewTime> {
    Some(NewTime::At(Time { seconds, nanoseconds: 0 }))
}

pub(crate) fn programs() -> Vec<Program> {
    const LONG: &[u8] = &[b'l'; 255];
    const NONE: SetAttributes = SetAttributes {
        mode: None,
        uid: None,
        gid: None,
        size_bytes: None,
        atime: None,
        mtime: None,
        ctime: None,
        clears_set_id: false,
        is_outsider: false,
    };
    let link = step(|fs| {
        fs.link(find(fs, b"a"), Ino::ROOT, b"b").unwrap();
    });
    let symlink = step(|fs| {
        let new = NewFile { mode: mode::SYMLINK | 0o777, target: b"to/where", ..NewFile::default() };
        fs.make(Ino::ROOT, b"s", &new).unwrap();
    });
    let remove_directory = step(|fs| {
        let gone = fs.remove_directory(Ino::ROOT, b"d").unwrap().unwrap();
        fs.reap(gone).unwrap();
    });
    let allocate = step(|fs| {
        fs.allocate(find(fs, b"a"), 0, 8000, Allocate::Reserve { keeps_size: false }).unwrap();
    });
    let read = step(|fs| {
        fs.read(find(fs, b"a"), 0, &mut [0; 10]).unwrap();
        fs.touch(find(fs, b"a")).unwrap();
    });
    let unnamed = step(|fs| {
        let ino = fs.make_unnamed(Ino::ROOT, &file(0o600), true).unwrap().ino;
        fs.write(ino, 5000, &[7; 9000], WriteHow::default()).unwrap();
        fs.link(ino, Ino::ROOT, b"named").unwrap();
    });
    let exchange = step(|fs| {
        fs.rename((Ino::ROOT, b"a"), (Ino::ROOT, b"d"), RenameHow::Exchange).unwrap();
    });
    let whiteout = step(|fs| {
        let how = RenameHow::Whiteout { uid: 1, gid: 2 };
        fs.rename((Ino::ROOT, b"a"), (Ino::ROOT, b"w"), how).unwrap();
    });
    let named: Vec<(&str, Vec<Step>)> = vec![
        ("hello world", vec![create(b"a"), write(b"a", 0, b"HelloWorld")]),
        ("append", vec![create(b"a"), write(b"a", 0, b"Hello"), write(b"a", 5, b"World")]),
        ("atime", vec![create(b"a"), write(b"a", 0, b"x"), read]),
        ("ctime/mtime", vec![make_directory(b"d"), inside_d(), unlink_in_d()]),
        ("chmod", vec![create(b"a"), set(b"a", SetAttributes { mode: Some(0o4777), ..NONE })]),
        ("chown", vec![create(b"a"), set(b"a", SetAttributes { uid: Some(5), gid: Some(6), ..NONE })]),
        ("link", vec![create(b"a"), link, unlink(b"a")]),
        ("symlink", vec![symlink]),
        ("mkdir/rmdir", vec![make_directory(b"d"), remove_directory]),
        (
            "rename: overwrite",
            vec![
                create(b"a"),
                write(b"a", 0, b"new"),
                create(b"b"),
                write(b"b", 0, b"old"),
                rename(b"a", b"b"),
            ],
        ),
        ("rename: directory", vec![make_directory(b"d"), inside_d(), rename(b"d", b"e")]),
        ("rename: long name", vec![create(b"a"), rename(b"a", LONG)]),
        ("touch", vec![create(b"a"), set(b"a", SetAttributes { atime: at(5), mtime: at(6), ..NONE })]),
        ("long name", vec![create(LONG), write(LONG, 0, b"text")]),
        ("unlink", vec![create(b"a"), write(b"a", 0, &[1; 6000]), unlink(b"a")]),
        ("update", vec![create(b"a"), write(b"a", 0, &[1; 9000]), write(b"a", 3000, &[2; 2000])]),
        ("fallocate", vec![create(b"a"), allocate, write(b"a", 100, b"in it")]),
        (
            "truncate",
            vec![
                create(b"a"),
                write(b"a", 0, &[1; 9000]),
                set(b"a", SetAttributes { size_bytes: Some(100), ..NONE }),
            ],
        ),
        // Not in the table: what else has records of its own.
        ("unnamed", vec![unnamed]),
        ("exchange", vec![create(b"a"), make_directory(b"d"), exchange]),
        ("whiteout", vec![create(b"a"), whiteout]),
    ];
    named.into_iter().map(|(name, steps)| Program { name: name.to_owned(), steps, from: 0 }).collect()
}

fn inside_d() -> Step {
    step(|fs| {
        fs.make(find(fs, b"d"), b"inside", &file(0o600)).unwrap();
    })
}

fn unlink_in_d() -> Step {
    step(|fs| {
        let gone = fs.unlink(find(fs, b"d"), b"inside").unwrap().unwrap();
        fs.reap(gone).unwrap();
    })
}
