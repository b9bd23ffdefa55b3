//! The generator: how many workloads, in which order, and what they look like.

use std::collections::{BTreeMap, BTreeSet};

use fastness_crashcheck_workload::ace::{FileSet, Kind, Sequences, operations};
use fastness_crashcheck_workload::{Command, Workload};

#[test]
fn each_operation_has_as_many_parameters_as_published() {
    let count = |set| Kind::ALL.map(|kind| operations(kind, set).len());
    // creat mkdir falloc dwrite link unlink remove rename truncate rmdir
    assert_eq!(count(FileSet::Published), [2, 1, 6, 4, 12, 5, 5, 16, 4, 1]);
    assert_eq!(count(FileSet::Intended), [2, 1, 6, 4, 6, 4, 4, 7, 4, 1]);
}

#[test]
fn sequences_are_as_many_as_published() {
    for (length, set, expected) in [
        (1, FileSet::Published, 56),
        (1, FileSet::Intended, 39),
        (2, FileSet::Published, 3136),
        (2, FileSet::Intended, 1521),
        (3, FileSet::Published, 50_653),
    ] {
        let sequences = Sequences::new(length, set);
        assert_eq!(sequences.size_hint(), (expected, Some(expected)));
        assert_eq!(sequences.count(), expected, "{length} {set:?}");
    }
}

#[test]
fn no_sequence_is_there_twice_and_names_mean_one_workload() {
    for length in 1..=2 {
        let published: BTreeMap<_, _> =
            Sequences::new(length, FileSet::Published).map(|one| (one.name.clone(), one)).collect();
        let distinct: BTreeSet<_> = published.values().map(|one| format!("{:?}", one.core)).collect();
        assert_eq!(distinct.len(), published.len());
        assert!(Sequences::new(length, FileSet::Intended).all(|one| published[&one.name] == one));
        let by_number = Sequences::new(length, FileSet::Intended);
        assert!(
            published.values().enumerate().all(|(i, one)| by_number.get(i as u64 + 1).as_ref() == Some(one))
        );
        assert_eq!(by_number.get(0), None);
        assert_eq!(by_number.get(published.len() as u64 + 1), None);
    }
}

#[test]
fn skeletons_come_in_order_and_the_last_operation_changes_fastest() {
    let names: Vec<_> = Sequences::new(2, FileSet::Published).map(|one| (one.name, one.core)).collect();
    let all = |kind| operations(kind, FileSet::Published);
    // creat creat: 2 x 2, creat mkdir: 2 x 1, creat falloc: 2 x 6.
    let (creat, mkdir, falloc) = (all(Kind::Creat), all(Kind::Mkdir), all(Kind::Falloc));
    assert_eq!(names[0], ("seq2-0001".into(), vec![creat[0].clone(), creat[0].clone()]));
    assert_eq!(names[1].1, [creat[0].clone(), creat[1].clone()]);
    assert_eq!(names[4].1, [creat[0].clone(), mkdir[0].clone()]);
    assert_eq!(names[11].1, [creat[0].clone(), falloc[5].clone()]);
    assert_eq!(names[3135].0, "seq2-3136");
}

/// The operation between mark and checkpoint is the last one, and it is one.
#[test]
fn one_operation_is_between_mark_and_checkpoint() {
    for one in Sequences::new(1, FileSet::Published).chain(Sequences::new(2, FileSet::Published)) {
        let run = &one.workload.run;
        let mark = run.iter().position(|command| *command == Command::Mark).unwrap();
        assert_eq!(run[mark + 2], Command::Checkpoint(1), "{}", one.name);
        assert!(
            run[mark + 3..].iter().all(|command| matches!(command, Command::Close { .. })),
            "{}",
            one.name
        );
        assert_eq!(Workload::parse(&one.workload.to_string()).as_ref(), Ok(&one.workload), "{}", one.name);
    }
}

#[test]
fn dependencies_are_put_before_what_needs_them() {
    let run = |number| {
        let text = Sequences::new(2, FileSet::Published).get(number).unwrap().workload.to_string();
        text.split_once("# run\n").unwrap().1.to_owned()
    };
    // creat foo, creat foo.
    assert_eq!(
        run(1),
        "open foo O_RDWR|O_CREAT 0777\nclose foo\nunlink foo\nmark\nopen foo O_RDWR|O_CREAT 0777\ncheckpoint 1\nclose foo\n"
    );
    // rmdir A, rmdir A.
    assert_eq!(run(3136), "mkdir A 0777\nrmdir A\nmkdir A 0777\nmark\nrmdir A\ncheckpoint 1\n");
    let all: Vec<_> = Sequences::new(2, FileSet::Published).collect();
    let of = |core: &str| {
        let found =
            all.iter().find(|one| format!("{:?}", one.core.iter().map(short).collect::<Vec<_>>()) == core);
        found
            .unwrap_or_else(|| panic!("{core}"))
            .workload
            .to_string()
            .split_once("# run\n")
            .unwrap()
            .1
            .to_owned()
    };
    assert_eq!(
        of(r#"["truncate A/foo 0", "falloc A/foo Extend"]"#),
        "mkdir A 0777\nopen Afoo O_RDWR|O_CREAT 0777\nwrite Afoo 0 4096\ntruncate Afoo 0\nwrite Afoo 0 4096\nmark\n\
         falloc Afoo FALLOC_FL_KEEP_SIZE 3072 2048\ncheckpoint 1\nclose Afoo\n"
    );
    assert_eq!(
        of(r#"["link foo bar", "link foo bar"]"#),
        "open foo O_RDWR|O_CREAT 0777\nlink foo bar\nunlink bar\nmark\nlink foo bar\ncheckpoint 1\nclose foo\n"
    );
    // What is in the directory moves with it.
    assert_eq!(
        of(r#"["creat A/foo", "rename A B"]"#),
        "mkdir A 0777\nopen Afoo O_RDWR|O_CREAT 0777\nclose Afoo\nmark\nrename A B\ncheckpoint 1\n"
    );
}

fn short(operation: &fastness_crashcheck_workload::ace::Operation) -> String {
    use fastness_crashcheck_workload::ace::Operation as O;
    match operation {
        O::Creat { file } => format!("creat {file}"),
        O::Falloc { file, amount } => format!("falloc {file} {amount:?}"),
        O::Truncate { file, len } => format!("truncate {file} {len}"),
        O::Link { file, name } => format!("link {file} {name}"),
        O::Rename { from, to } => format!("rename {from} {to}"),
        other => format!("{other:?}"),
    }
}
