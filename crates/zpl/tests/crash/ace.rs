//! ACE's sequences of one operation, carried out in process.

use fastness_crashcheck_workload::ace::{FileSet, Sequences};
use fastness_crashcheck_workload::jlang::{Command, FallocFlags, OpenFlags, Path};
use fastness_zpl::{Allocate, FileSystem, FsError, Ino, NewFile, SetAttributes, WriteHow, XattrHow, mode};

use crate::support::{directory, file};
use crate::{Program, step};

const ATTRIBUTE: &[u8] = b"user.workload";

pub(crate) fn programs() -> Vec<Program> {
    let sequences = Sequences::new(1, FileSet::Published);
    let program = |generated: fastness_crashcheck_workload::ace::Generated| {
        let commands = generated.workload.setup.into_iter().chain(generated.workload.run);
        // What persists and what marks is the judge's.
        let is_step = |command: &Command| {
            let is_other = matches!(command, Command::Mark | Command::Checkpoint(_) | Command::None);
            !is_other && !matches!(command, Command::Close { .. })
        };
        let steps = commands.filter(is_step).enumerate().map(|(number, command)| {
            let byte = b'a' + number as u8;
            step(move |fs| match carry_out(fs, &command, byte) {
                Ok(())
                | Err(FsError::Exists | FsError::NotFound | FsError::NotEmpty | FsError::Invalid(_)) => {}
                Err(error) => panic!("{command:?}: {error}"),
            })
        });
        let steps: Vec<_> = steps.collect();
        Program { name: generated.name, from: steps.len() - 1, steps }
    };
    let programs: Vec<_> = sequences.map(program).collect();
    assert_eq!(programs.len(), 56, "the published number");
    programs
}

/// The directory and the last name of a path.
fn place<'p>(fs: &FileSystem, path: &'p Path) -> Result<(Ino, &'p [u8]), FsError> {
    let (above, name) = path.relative().rsplit_once('/').unwrap_or(("", path.relative()));
    let names = above.split('/').filter(|name| !name.is_empty());
    let directory = names.into_iter().try_fold(Ino::ROOT, |at, name| fs.find(at, name.as_bytes()))?;
    Ok((directory, name.as_bytes()))
}

fn find(fs: &FileSystem, path: &Path) -> Result<Ino, FsError> {
    if path.is_root() {
        return Ok(Ino::ROOT);
    }
    let (directory, name) = place(fs, path)?;
    fs.find(directory, name)
}

fn gone(fs: &FileSystem, gone: Option<Ino>) -> Result<(), FsError> {
    gone.map_or(Ok(()), |ino| fs.reap(ino))
}

fn carry_out(fs: &FileSystem, command: &Command, byte: u8) -> Result<(), FsError> {
    match command {
        Command::Open { file: path, flags, mode } => {
            let (directory, name) = place(fs, path)?;
            match fs.find(directory, name) {
                Err(FsError::NotFound) if flags.contains(OpenFlags::CREAT) => {
                    fs.make(directory, name, &file(mode & 0o7777)).map(drop)
                }
                Ok(ino) if flags.contains(OpenFlags::TRUNC) => truncate(fs, ino, 0),
                found => found.map(drop),
            }
        }
        Command::Opendir { directory, .. } => find(fs, directory).map(drop),
        Command::Mkdir { directory: path, mode } => {
            let (at, name) = place(fs, path)?;
            fs.make(at, name, &directory(mode & 0o7777)).map(drop)
        }
        Command::Rmdir { directory } => {
            let (at, name) = place(fs, directory)?;
            gone(fs, fs.remove_directory(at, name)?)
        }
        Command::Write { file, offset, len }
        | Command::Dwrite { file, offset, len }
        | Command::Mmapwrite { file, offset, len } => {
            fs.write(find(fs, file)?, *offset, &vec![byte; *len as usize], WriteHow::default()).map(drop)
        }
        Command::Falloc { file, flags, offset, len } => {
            let keeps_size = flags.contains(FallocFlags::KEEP_SIZE);
            let what = match () {
                () if flags.contains(FallocFlags::PUNCH_HOLE) => Allocate::Punch,
                () if flags.contains(FallocFlags::ZERO_RANGE) => Allocate::Zero { keeps_size },
                () => Allocate::Reserve { keeps_size },
            };
            fs.allocate(find(fs, file)?, *offset, *len, what)
        }
        Command::Truncate { file, len } => truncate(fs, find(fs, file)?, *len),
        Command::Link { file, name } => {
            let ino = find(fs, file)?;
            let (at, name) = place(fs, name)?;
            fs.link(ino, at, name).map(drop)
        }
        Command::Symlink { target, name } => {
            let (at, name) = place(fs, name)?;
            let target = target.as_str().as_bytes();
            let new = NewFile { mode: mode::SYMLINK | 0o777, target, ..NewFile::default() };
            fs.make(at, name, &new).map(drop)
        }
        Command::Rename { from, to } => {
            let (from, to) = (place(fs, from)?, place(fs, to)?);
            gone(fs, fs.rename(from, to, fastness_zpl::RenameHow::Replace)?)
        }
        Command::Unlink { file } => {
            let (at, name) = place(fs, file)?;
            gone(fs, fs.unlink(at, name)?)
        }
        Command::Remove { file } => {
            let (at, name) = place(fs, file)?;
            let removed = match fs.unlink(at, name) {
                Err(FsError::IsADirectory) => fs.remove_directory(at, name),
                removed => removed,
            };
            gone(fs, removed?)
        }
        Command::Fsetxattr { file } => {
            fs.set_xattr(find(fs, file)?, ATTRIBUTE, b"value", XattrHow::Set, false)
        }
        Command::Removexattr { file } => fs.remove_xattr(find(fs, file)?, ATTRIBUTE),
        Command::Mknod { file, mode, device } => {
            let (at, name) = place(fs, file)?;
            let new = NewFile { mode: mode.bits(), rdev: *device, ..NewFile::default() };
            fs.make(at, name, &new).map(drop)
        }
        Command::Fsync { file } | Command::Fdatasync { file } => fs.sync_file(find(fs, file)?, false),
        Command::Sync => fs.sync_all(),
        Command::None | Command::Close { .. } | Command::Mark | Command::Checkpoint(_) => Ok(()),
    }
}

fn truncate(fs: &FileSystem, ino: Ino, size_bytes: u64) -> Result<(), FsError> {
    let set = SetAttributes { size_bytes: Some(size_bytes), ..SetAttributes::default() };
    fs.set_attributes(ino, &set).map(drop)
}
