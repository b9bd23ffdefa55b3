use std::collections::BTreeSet;

use fastness_crashcheck_workload::jlang::FallocFlags;

use super::*;

/// Workloads that come from each other, as a corpus that keeps all would have them.
fn many(seed: u64, count: usize) -> Vec<Workload> {
    let (mutator, mut rng) = (Mutator::default(), Rng::new(seed));
    let mut corpus = seeds();
    while corpus.len() < count {
        let (one, two) = (rng.index(corpus.len()), rng.index(corpus.len()));
        let new = mutator.mutate(&corpus[one], &corpus[two], &mut rng);
        corpus.push(new);
    }
    corpus
}

/// An operation with what was done before it.
fn found(all: &[Workload], is_wanted: impl Fn(&[Command], &Command) -> bool) -> bool {
    all.iter().any(|workload| {
        let operations = operations(workload);
        operations.iter().enumerate().any(|(at, one)| is_wanted(&operations[..at], one))
    })
}

#[test]
fn one_seed_gives_the_same_workloads() {
    assert_eq!(seeds().len(), 5);
    assert_eq!(many(1, 300), many(1, 300));
    assert_ne!(many(1, 300), many(2, 300));
}

#[test]
fn all_are_workloads_with_a_checkpoint_after_each_operation() {
    for workload in many(3, 3000) {
        assert_eq!(Workload::parse(&workload.to_string()).as_ref(), Ok(&workload), "{workload}");
        assert!(operations(&workload).len() <= Mutator::default().operations_max);
        let checkpoints = workload.run.iter().filter(|one| matches!(one, Command::Checkpoint(_))).count();
        assert_eq!(checkpoints, operations(&workload).len());
        assert_eq!(workload.run.first(), Some(&Command::Mark));
    }
}

#[test]
fn paths_with_one_name_become_one() {
    let path = |text| Path::new(text).unwrap();
    let workload = workload(vec![
        Command::Mkdir { directory: path("A/B"), mode: 0o755 },
        Command::Unlink { file: path("AB") },
    ]);
    assert_eq!(workload.define, [path("A/B")]);
    assert_eq!(workload.run[3], Command::Unlink { file: path("A/B") });
}

#[test]
fn what_only_fuzzing_finds_comes_soon() {
    let all = many(4, 4000);
    let writes = |wanted: &dyn Fn(u64, u64) -> bool| {
        found(&all, |_, one| matches!(one, Command::Write { offset, len, .. } if wanted(*offset, *len)))
    };
    assert!(writes(&|_, len| len == 0), "empty");
    assert!(writes(&|_, len| len >= 1 << 22), "huge");
    assert!(writes(&|_, len| len > 8 && len % 8 != 0), "unaligned length");
    assert!(writes(&|offset, _| offset > 8 && offset % 8 != 0), "unaligned offset");
    assert!(writes(&|offset, _| offset > 1 << 31), "behind 32 bits");
    let truncates = |wanted: &dyn Fn(u64) -> bool| {
        found(&all, |_, one| matches!(one, Command::Truncate { len, .. } if wanted(*len)))
    };
    assert!(
        truncates(&|len| len == 0) && truncates(&|len| len % 4096 == 1) && truncates(&|len| len > 1 << 31)
    );
    let flags: BTreeSet<u32> = all
        .iter()
        .flat_map(operations)
        .filter_map(|one| if let Command::Falloc { flags, .. } = one { Some(flags.bits()) } else { None })
        .collect();
    let punch = FallocFlags::PUNCH_HOLE.with(FallocFlags::KEEP_SIZE).bits();
    assert!([0, 1, punch, 8, 16, 32].iter().all(|one| flags.contains(one)), "{flags:?}");
    let removed = |before: &[Command], path: &Path| {
        let opened = before.iter().position(|one| matches!(one, Command::Open { file, .. } if file == path));
        let is_unlink = |one: &Command| matches!(one, Command::Unlink { file } if file == path);
        opened.is_some_and(|at| before[at..].iter().any(is_unlink))
    };
    assert!(found(&all, |before, one| matches!(one, Command::Write { file, .. } if removed(before, file))));
    assert!(found(
        &all,
        |before, one| matches!(one, Command::Truncate { file, .. } if removed(before, file))
    ));
}

#[test]
fn names_are_at_their_limits_and_come_over_each_other() {
    let all = many(5, 4000);
    let lengths: BTreeSet<usize> = all
        .iter()
        .flat_map(|workload| &workload.define)
        .flat_map(|path| path.as_str().split('/').map(str::len))
        .collect();
    assert!([1, 254, 255, 256].iter().all(|len| lengths.contains(len)), "{lengths:?}");
    assert!(
        all.iter().flat_map(|workload| &workload.define).any(|path| path.as_str().split('/').count() > 8)
    );
    assert!(found(&all, |_, one| matches!(one, Command::Rename { from, to } if from == to)), "over itself");
    assert!(found(&all, |_, one| matches!(one, Command::Link { file, name } if file == name)));
    assert!(found(&all, |_, one| matches!(one, Command::Rename { from, to } if to.is_below(from))));
    let is_made = |before: &[Command], path: &Path| {
        before.iter().any(|one| matches!(one, Command::Mkdir { directory, .. } if directory == path))
    };
    assert!(found(&all, |before, one| {
        matches!(one, Command::Rename { from, to } if is_made(before, to) && !is_made(before, from))
    }));
    // A deep file has its directory before it, most of the time.
    let (mut deep, mut with_directory) = (0, 0);
    for operations in all.iter().map(operations) {
        for (at, one) in operations.iter().enumerate() {
            if let Command::Open { file, .. } = one
                && file.as_str().split('/').count() > 4
            {
                deep += 1;
                with_directory += usize::from(is_made(&operations[..at], &file.parent().unwrap()));
            }
        }
    }
    assert!(deep > 100 && with_directory * 2 > deep, "{with_directory} of {deep}");
}

#[test]
fn what_fails_is_shrunk_until_nothing_can_go() {
    // A write to a file that is open under a long name, of a length that is no multiple of 8.
    let fails = |workload: &Workload| {
        let operations = operations(workload);
        let opened = |file: &Path| {
            operations.iter().any(|one| matches!(one, Command::Open { file: open, .. } if open == file))
        };
        operations.iter().any(|one| {
            matches!(one, Command::Write { file, len, .. }
                if opened(file) && file.as_str().len() > 200 && len % 8 != 0)
        })
    };
    let input = many(6, 20_000).into_iter().rev().find(fails).expect("it comes");
    assert!(operations(&input).len() > 2);
    let shrunk = shrink(&input, 10_000, &mut |one| Ok::<_, ()>(fails(one))).unwrap();
    let left = operations(&shrunk);
    assert_eq!(left.len(), 2, "{shrunk}");
    assert!(matches!(&left[1], Command::Write { offset: 0, .. }), "{shrunk}");
    assert_eq!(shrink(&input, 0, &mut |_| Ok::<_, ()>(true)).unwrap(), input, "as often as allowed");
}
