//! J-lang: what is printed is read back; what is wrong is named with its place; hostile text is an error.

use fastness_crashcheck_workload::jlang::{
    COMMANDS_MAX, FallocFlags, LENGTH_MAX, NodeMode, OFFSET_MAX, OpenFlags, Path, TEXT_BYTES_MAX,
};
use fastness_crashcheck_workload::{Command, ParseErrorKind, Workload};
use proptest::prelude::*;

const PUBLISHED: &str = "# define\ntest\nA\nA/C\nB\nfoo\nbar\nA/foo\nA/bar\nB/foo\nB/bar\nA/C/foo\nA/C/bar\n\n\
    # declare\nlocal_checkpoint\n\n# setup\n\n\n# run\nopen foo O_RDWR|O_CREAT 0777\nwrite foo 0 32768\n\
    falloc foo FALLOC_FL_ZERO_RANGE 32768 32768\nopen bar O_RDWR|O_CREAT 0777\nunlink bar\nfsync bar\ncheckpoint 1\n\
    opendir test 0777\nfsync test\nlink foo ACbar\nmknod Afoo TEST_FILE_PERMS|S_IFCHR|S_IFBLK 0\nclose foo\nclose bar\n";

#[test]
fn reads_what_the_published_generators_write() {
    let workload = Workload::parse(PUBLISHED).unwrap();
    assert_eq!(workload.define.len(), 12);
    assert_eq!(workload.declare, ["local_checkpoint"]);
    let path = |text| Path::new(text).unwrap();
    assert_eq!(workload.run[2].to_string(), "falloc foo FALLOC_FL_ZERO_RANGE 32768 32768");
    assert_eq!(workload.run[9], Command::Link { file: path("foo"), name: path("A/C/bar") });
    assert_eq!(
        workload.run[10],
        Command::Mknod { file: path("A/foo"), mode: NodeMode::new(0o060_777).unwrap(), device: 0 }
    );
    assert_eq!(Workload::parse(&workload.to_string()), Ok(workload));
}

#[test]
fn errors_name_line_and_column() {
    for (text, line, column, message) in [
        ("mkdir A 0777", 1, 1, "a workload begins with \"# define\""),
        ("# define\nA\n# run\nmkdir A 0888", 4, 9, "expected permissions in octal"),
        ("# define\nA\n# run\n  mkdir B 0777", 4, 9, "\"B\" is not defined"),
        ("# define\nA\n# run\nmkdir A", 4, 8, "expected permissions in octal"),
        ("# define\nA\n# run\nmkdir A 0777 0", 4, 14, "unexpected \"0\""),
        ("# define\nA\n# run\nmkdri A 0777", 4, 1, "unknown command \"mkdri\""),
        ("# define\nA/b\nAb", 3, 1, "\"Ab\" was defined before, perhaps with other slashes"),
        ("# define\nA\n# define", 3, 1, "no section, or one that was there before: \"define\""),
        ("# what", 1, 1, "no section, or one that was there before: \"what\""),
        ("# run\n# a comment", 2, 1, "no section, or one that was there before: \"a comment\""),
        ("# declare\na-b", 2, 1, "a variable is a word of letters, digits and '_'"),
        ("# define\nA\n# run\nfalloc A KEEP 0 1", 4, 10, "expected flags of falloc, or 0"),
        ("# define\nA\n# run\nopen A O_RDWR|O_FOO 0777", 4, 8, "expected flags of open, as O_RDWR|O_CREAT"),
        ("# define\nA\n# run\nmknod A S_IFDIR 0", 4, 9, "expected type and permissions of a node"),
        ("# define\nA\n# run\nwrite A -1 5", 4, 9, "expected a number"),
    ] {
        let error = Workload::parse(text).unwrap_err();
        assert_eq!(
            (error.line, error.column, error.kind.to_string().as_str()),
            (line, column, message),
            "{text}"
        );
    }
}

#[test]
fn paths_stay_in_the_directory() {
    let long = "a".repeat(257);
    let deep = "a/".repeat(600) + "a";
    for text in
        ["", "/", "/etc", "..", "A/..", "A/../B", ".", "A/", "A//B", "test/A", "a b", "ä", &long, &deep]
    {
        assert!(Path::new(text).is_err(), "{text:?}");
    }
    assert!(Path::new(&"a".repeat(256)).is_ok(), "too long for a file system, which has to say so");
    assert_eq!(Path::root().relative(), ".");
    assert!(Path::new("A/B").unwrap().is_below(&Path::new("A").unwrap()));
    assert!(!Path::new("AB").unwrap().is_below(&Path::new("A").unwrap()));
}

#[test]
fn hostile_text_is_bounded() {
    let kind = |text: &str| Workload::parse(text).unwrap_err().kind;
    assert_eq!(kind(&" ".repeat(TEXT_BYTES_MAX + 1)), ParseErrorKind::TextTooLong);
    assert_eq!(
        kind(&format!("# run\n{}", "sync\n".repeat(COMMANDS_MAX + 1))),
        ParseErrorKind::SectionTooLong(COMMANDS_MAX)
    );
    let write = |offset: &str, len: &str| kind(&format!("# define\nA\n# run\nwrite A {offset} {len}"));
    assert_eq!(write("0", &(LENGTH_MAX + 1).to_string()), ParseErrorKind::TooLarge(LENGTH_MAX));
    assert_eq!(write(&(OFFSET_MAX + 1).to_string(), "1"), ParseErrorKind::TooLarge(OFFSET_MAX));
    assert_eq!(write(&"9".repeat(1000), "1"), ParseErrorKind::TooLarge(OFFSET_MAX));
    // A message does not repeat a long word.
    assert!(Workload::parse(&format!("# run\n{}", "x".repeat(100_000))).unwrap_err().to_string().len() < 200);
}

fn command(paths: Vec<Path>) -> impl Strategy<Value = Command> {
    let file = prop::sample::select(paths);
    let mode = 0..=0o7777u32;
    let flags = any::<u32>().prop_map(OpenFlags::from_bits_truncate);
    let falloc = any::<u32>().prop_map(FallocFlags::from_bits_truncate);
    let node =
        (prop::sample::select(vec![0, 0o010_000, 0o020_000, 0o060_000, 0o100_000, 0o140_000]), mode.clone())
            .prop_map(|(kind, mode)| NodeMode::new(kind | mode).unwrap());
    let range = (0..=OFFSET_MAX, 0..=LENGTH_MAX);
    (0..23u8, file.clone(), file, (mode, flags, falloc, node), range, any::<u64>()).prop_map(
        |(kind, file, name, (mode, flags, falloc, node), (offset, len), number)| match kind {
            0 => Command::Open { file, flags, mode },
            1 => Command::Opendir { directory: file, mode },
            2 => Command::Mkdir { directory: file, mode },
            3 => Command::Rmdir { directory: file },
            4 => Command::Close { file },
            5 => Command::Write { file, offset, len },
            6 => Command::Dwrite { file, offset, len },
            7 => Command::Mmapwrite { file, offset, len },
            8 => Command::Falloc { file, flags: falloc, offset, len },
            9 => Command::Truncate { file, len: offset },
            10 => Command::Link { file, name },
            11 => Command::Symlink { target: file, name },
            12 => Command::Rename { from: file, to: name },
            13 => Command::Unlink { file },
            14 => Command::Remove { file },
            15 => Command::Fsetxattr { file },
            16 => Command::Removexattr { file },
            17 => Command::Fsync { file },
            18 => Command::Fdatasync { file },
            19 => Command::Mknod { file, mode: node, device: number & 0xffff_ffff },
            20 => Command::Sync,
            21 => Command::Mark,
            _ => Command::Checkpoint(number),
        },
    )
}

fn workload() -> impl Strategy<Value = Workload> {
    let paths = prop::collection::vec("[A-C](/[a-c]{1,3}){0,3}", 1..8).prop_map(|texts| {
        let mut paths: Vec<_> = texts.iter().map(|text| Path::new(text).unwrap()).collect();
        paths.sort_by_key(Path::short);
        paths.dedup_by_key(|path| path.short());
        paths
    });
    paths.prop_flat_map(|define| {
        let commands = || prop::collection::vec(command(define.clone()), 0..20);
        (Just(define.clone()), prop::collection::vec("[a-z_0-9]{1,9}", 0..3), commands(), commands())
            .prop_map(|(define, declare, setup, run)| Workload { define, declare, setup, run })
    })
}

proptest! {
    #[test]
    fn what_is_printed_is_read_back(workload in workload()) {
        prop_assert_eq!(Workload::parse(&workload.to_string()), Ok(workload));
    }

    #[test]
    fn any_text_is_a_workload_or_an_error(text in "\\PC*") {
        let _ = Workload::parse(&text);
    }

    #[test]
    fn damaged_workloads_are_workloads_or_errors(workload in workload(), at in any::<prop::sample::Index>(), with in "\\PC{0,3}") {
        let text = workload.to_string();
        let (start, end) = (at.index(text.len()), (at.index(text.len()) + 2).min(text.len()));
        let damaged = format!("{}{with}{}", &text[..start], &text[end..]);
        if let Ok(parsed) = Workload::parse(&damaged) {
            prop_assert_eq!(Workload::parse(&parsed.to_string()), Ok(parsed));
        }
    }
}
