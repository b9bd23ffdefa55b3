//! Runs a recovery on each crash image.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::pace::Pace;
use super::state::State;
use crate::error::{CheckError, Result, make_dir};
use crate::generate::{Contents, Layout};
use crate::process::{self, Ending};

/// Recovers copies of crash images.
pub trait Extract: Sync {
    /// A working place; each thread has one.
    type Place: Send;

    /// Makes a place.
    ///
    /// # Errors
    /// If there is no space.
    fn place(&self) -> Result<Self::Place>;

    /// Recovers a copy of `contents`, and returns its state.
    ///
    /// # Errors
    /// If the recovery could not be run. A recovery that fails is a state.
    fn extract(&self, place: &mut Self::Place, contents: &Contents) -> Result<State>;
}

/// A function that needs no place.
impl<F: Fn(&Contents) -> Result<State> + Sync> Extract for F {
    type Place = ();

    fn place(&self) -> Result<()> {
        Ok(())
    }

    fn extract(&self, (): &mut (), contents: &Contents) -> Result<State> {
        self(contents)
    }
}

/// Runs a program on files with the crash image.
#[derive(Debug)]
pub struct CommandExtract {
    /// The program and its arguments; `{pm}` or `{0}` stands for the file of the first region, `{1}` for the
    /// second, and so on; disks follow the regions.
    pub command: Vec<String>,
    /// Run on the files after a successful recovery: does it accept writes?
    pub write: Option<Vec<String>>,
    /// Where the regions are.
    pub layout: Layout,
    /// Each is killed then, or earlier once one has hung ([`Pace`]).
    pub time_out: Duration,
    /// How long they have taken so far.
    pub pace: Pace,
    /// Where files are made.
    pub work: PathBuf,
    /// Where the program is run.
    pub current_dir: PathBuf,
}

impl CommandExtract {
    /// Puts the file names into a command.
    pub fn fill(command: &[String], files: &[PathBuf]) -> Vec<String> {
        let fill = |argument: &String| {
            let mut argument = argument.clone();
            for (index, file) in files.iter().enumerate() {
                let file = file.to_string_lossy();
                argument = argument.replace(&format!("{{{index}}}"), &file);
                if index == 0 {
                    argument = argument.replace("{pm}", &file);
                }
            }
            argument
        };
        command.iter().map(fill).collect()
    }

    fn run(&self, command: &[String], files: &[PathBuf]) -> Result<process::Output> {
        let words = Self::fill(command, files);
        let (program, arguments) = words.split_first().ok_or_else(|| CheckError::Program {
            program: "an empty command".to_owned(),
            source: io::ErrorKind::InvalidInput.into(),
        })?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.current_dir);
        let begun = Instant::now();
        let output = process::run(&mut command, b"", self.pace.time_out(self.time_out))
            .map_err(|source| CheckError::Program { program: program.clone(), source })?;
        self.pace.note(begun.elapsed(), output.ending == Ending::TimedOut);
        Ok(output)
    }
}

/// A folder of its own for each thread, gone with it.
#[derive(Debug)]
pub struct WorkDir(PathBuf);

impl WorkDir {
    /// A new one in `work`.
    ///
    /// # Errors
    /// Those of making it.
    pub fn new(work: &Path) -> Result<WorkDir> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = work.join(format!("extract-{}-{number}", std::process::id()));
        make_dir(&path)?;
        Ok(WorkDir(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        // A directory of the test itself; anything left of it does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Extract for CommandExtract {
    type Place = WorkDir;

    fn place(&self) -> Result<WorkDir> {
        WorkDir::new(&self.work)
    }

    fn extract(&self, place: &mut WorkDir, contents: &Contents) -> Result<State> {
        let files = write_files(&self.layout, contents, place.path())?;
        let mut state = State::from(self.run(&self.command, &files)?);
        if let Some(write) = self.write.as_ref().filter(|_| state.ending.is_success()) {
            let ending = self.run(write, &files)?.ending;
            state.write = (!ending.is_success()).then_some(ending);
        }
        Ok(state)
    }
}

/// Writes a crash image into files in `dir`: one for each region, and one for each disk. Holes are zeroes.
///
/// # Errors
/// Those of the files.
pub fn write_files(layout: &Layout, contents: &Contents, dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut write = |name: String, image: &crate::image::Image, start: u64, len_bytes: u64| {
        let path = dir.join(name);
        let written = File::create(&path).and_then(|file| image.write_sparse(&file, start, len_bytes));
        match written {
            Ok(()) => {
                files.push(path);
                Ok(())
            }
            Err(source) => Err(CheckError::File { what: "write", path, source }),
        }
    };
    for (index, part) in layout.parts().iter().enumerate() {
        write(format!("pm{index}"), &contents.memory, part.offset, part.region.len_bytes)?;
    }
    for (index, disk) in contents.disks.iter().enumerate() {
        write(format!("disk{index}"), disk, 0, disk.len_bytes())?;
    }
    Ok(files)
}
