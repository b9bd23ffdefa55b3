//! New operations, with what they need before them.

use fastness_crashcheck_workload::Command;
use fastness_crashcheck_workload::jlang::{FallocFlags, NodeMode, OpenFlags, Path};
use fastness_pm_model::Rng;

use super::fields::numbers_mut;
use super::{Mutator, change, names};
use crate::pick;

const WHOLE: [u64; 4] = [0, 4096, 8192, 16_384];

/// A file that is open after these operations, or operations that open one.
fn opened(operations: &[Command], rng: &mut Rng) -> (Path, Vec<Command>) {
    let open: Vec<&Path> = operations
        .iter()
        .filter_map(|command| if let Command::Open { file, .. } = command { Some(file) } else { None })
        .collect();
    if !open.is_empty() && !rng.one_in(4) {
        return ((*pick(rng, &open)).clone(), Vec::new());
    }
    let file = names::any(operations, rng);
    let mut before = names::parents(&file, operations);
    before.push(open_of(&file, rng));
    (file, before)
}

fn open_of(file: &Path, rng: &mut Rng) -> Command {
    let mut flags = OpenFlags::RDWR.with(OpenFlags::CREAT);
    for flag in [OpenFlags::APPEND, OpenFlags::TRUNC, OpenFlags::EXCL, OpenFlags::SYNC, OpenFlags::DIRECT] {
        if rng.one_in(12) {
            flags = flags.with(flag);
        }
    }
    Command::Open { file: file.clone(), flags, mode: 0o644 }
}

/// Any flags that may come together, and sometimes some that may not.
pub(super) fn falloc_flags(rng: &mut Rng) -> FallocFlags {
    let keep = FallocFlags::KEEP_SIZE;
    *pick(
        rng,
        &[
            FallocFlags::empty(),
            keep,
            FallocFlags::PUNCH_HOLE.with(keep),
            FallocFlags::PUNCH_HOLE,
            FallocFlags::ZERO_RANGE,
            FallocFlags::ZERO_RANGE.with(keep),
            FallocFlags::COLLAPSE_RANGE,
            FallocFlags::INSERT_RANGE,
        ],
    )
}

/// One operation with what it needs; whole blocks and odd ranges are as likely.
pub(super) fn any(operations: &[Command], mutator: &Mutator, rng: &mut Rng) -> Vec<Command> {
    let (file, mut commands) = opened(operations, rng);
    let (offset, len) = (*pick(rng, &WHOLE), *pick(rng, &WHOLE));
    let path = |rng: &mut Rng| names::any(operations, rng);
    let mut command = match rng.below(22) {
        0..=3 => Command::Write { file, offset, len },
        4 => Command::Dwrite { file, offset, len },
        5 => Command::Mmapwrite { file, offset, len },
        6..=7 => Command::Truncate { file, len: offset },
        8..=9 => Command::Falloc { file, flags: falloc_flags(rng), offset, len },
        10 => Command::Fsetxattr { file },
        11 => Command::Removexattr { file },
        12 => Command::Fsync { file },
        13 => Command::Close { file },
        kind => {
            commands.clear();
            let (one, two) = (path(rng), path(rng));
            commands.extend(names::parents(&two, operations));
            match kind {
                14 => Command::Link { file: one, name: two },
                15 | 16 => Command::Rename { from: one, to: two },
                17 => Command::Symlink { target: one, name: two },
                18 => Command::Unlink { file: one },
                19 => Command::Rmdir { directory: one },
                20 => Command::Mkdir { directory: two, mode: 0o755 },
                _ if rng.one_in(4) => match NodeMode::new(0o010_644) {
                    Some(mode) => Command::Mknod { file: two, mode, device: 0 },
                    None => Command::Sync,
                },
                _ => Command::Remove { file: one },
            }
        }
    };
    if rng.one_in(2) {
        numbers_mut(&mut command).into_iter().for_each(|number| change::odd(number, mutator, rng));
    }
    commands.push(command);
    commands
}

/// Several operations that go together.
pub(super) fn scene(operations: &[Command], mutator: &Mutator, rng: &mut Rng) -> Vec<Command> {
    let (file, mut commands) = opened(operations, rng);
    let mut number = |max: u64| {
        let start = *pick(rng, &WHOLE);
        crate::numbers::odd(start, max, rng)
    };
    let (offset, len, length) = (number(1 << 20), number(mutator.len_max), number(mutator.offset_max));
    let other = names::any(operations, rng);
    let write = |offset, len| Command::Write { file: file.clone(), offset, len };
    let truncate = |len| Command::Truncate { file: file.clone(), len };
    let directory = Path::new("A").unwrap_or_else(|_| Path::root());
    match rng.below(6) {
        // Removed, but open.
        0 => commands.extend([
            Command::Unlink { file: file.clone() },
            write(offset, len.min(1 << 16)),
            truncate(offset),
            Command::Close { file: file.clone() },
        ]),
        // Down, and up again: what was cut off must read as zeroes.
        1 => commands.extend([write(0, 8192), truncate(offset.min(8191)), truncate(8192 + offset)]),
        // Behind a hole.
        2 => commands.extend([truncate(length), write(length, 1 + len % 4096)]),
        // Two names of one file, one renamed over the other, and over itself.
        3 => commands.extend([
            Command::Link { file: file.clone(), name: other.clone() },
            Command::Rename { from: file.clone(), to: other },
            Command::Rename { from: file.clone(), to: file },
        ]),
        // Over a directory, and a directory below itself.
        4 => {
            commands.extend(names::parents(&directory, operations));
            commands.extend([
                Command::Mkdir { directory: directory.clone(), mode: 0o755 },
                Command::Rename { from: file, to: directory.clone() },
                Command::Rename { from: directory.clone(), to: other },
            ]);
        }
        // A name at a limit.
        _ => {
            let name = names::long(rng);
            commands.extend(names::parents(&name, operations));
            commands
                .extend([Command::Rename { from: file, to: name.clone() }, Command::Unlink { file: name }]);
        }
    }
    commands
}
