//! Tests of programs: traced and recovered as processes of this machine.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::analysis::{Analysis, Limits};
use super::config::{INPUT_FILE, OPERATIONS_FILE, OperationsConfig, Test};
use super::lines_read::lines_read;
use crate::check::{
    CommandExtract, Oracle, Pace, Predicate, RecoveryCrashes, RecoveryTrace, Step, TraceRecovery, write_files,
};
use crate::error::{CheckError, Result, make_dir};
use crate::generate::{Contents, Layout, Recovery};
use crate::process::Ending;
use crate::report::Report;
use crate::symbols::Symbols;
use crate::trace::open_trace;
use crate::tracer::{OperationsLog, PmFile, Tools, Traced, TracerError, UserTracer};

/// What the program under test prints.
const OUTPUT: &str = "output";

/// Where a test leaves its files, and with what it is run.
pub struct Setting<'a> {
    /// Where the trace goes.
    pub trace: &'a Path,
    /// Temporary files.
    pub work: &'a Path,
    /// Where images of crashes during recovery are kept that are findings, in a folder with the test's name;
    /// none: nowhere.
    pub keep: Option<&'a Path>,
    /// Recoveries at a time.
    pub threads: usize,
    /// Where QEMU and the plug-in are.
    pub tools: &'a Tools,
    /// No recovery begins after this.
    pub deadline: Option<Instant>,
    /// Told of each recovery.
    pub progress: &'a (dyn Fn(&Step<'_>) + Sync),
}

impl Test {
    /// Traces the program of a test, and analyses what it did.
    ///
    /// # Errors
    /// [`CheckError`]; the program's own failure is [`CheckError::Failed`].
    pub fn run(&self, setting: &Setting<'_>) -> Result<Report> {
        let end = self.trace(setting, None, None)?;
        if !end.is_success() {
            let said = std::fs::read(setting.work.join(OUTPUT)).unwrap_or_default();
            let said = String::from_utf8_lossy(&said[said.len().saturating_sub(2000)..]).into_owned();
            return Err(CheckError::Failed { end, said });
        }
        self.analyse(setting)
    }

    /// Analyses what [`trace`](Test::trace) has recorded.
    ///
    /// # Errors
    /// [`CheckError`]
    pub fn analyse(&self, setting: &Setting<'_>) -> Result<Report> {
        let dir = absolute(&self.dir)?;
        let time_out = Duration::from_secs(self.recover.timeout_s);
        let layout = Layout::of(open_trace(setting.trace)?.header())?;
        let extract = CommandExtract {
            command: in_dir(&dir, &self.recover.command),
            write: self.recover.write.as_ref().map(|write| in_dir(&dir, write)),
            layout: layout.clone(),
            time_out,
            pace: Pace::default(),
            work: setting.work.to_owned(),
            current_dir: dir.clone(),
        };
        let mut recovery = TracedRecovery {
            command: &self.recover.command,
            layout,
            work: setting.work.join("reads"),
            current_dir: &dir,
            time_out: Duration::from_secs(self.trace.timeout_s),
            tools: setting.tools,
        };
        let tracer = recovery.clone();
        let keep = setting.keep.map(|folder| folder.join(&self.name));
        let crashes = RecoveryCrashes {
            depth: self.recover.crashes,
            per_point: self.recover.per_point,
            tracer: &tracer,
            is_in_kernel: false,
            work: setting.work,
            keep: keep.as_deref(),
        };
        let mut oracles: Vec<Box<dyn Oracle>> = Vec::new();
        if let Some(command) = &self.oracle.predicate {
            let command = in_dir(&dir, command);
            oracles.push(Box::new(Predicate { command, time_out }));
        }
        let symbols = Symbols::of(&mut open_trace(setting.trace)?)?;
        let analysis = Analysis {
            name: &self.name,
            trace: setting.trace,
            images: &self.images,
            extract: &extract,
            recovery: Some(&mut recovery),
            oracles,
            has_prefix_oracle: self.oracle.prefix,
            has_operations: self.oracle.operations.is_some(),
            must_be_atomic: self.oracle.atomic,
            in_recovery: (crashes.depth > 0).then_some(crashes),
            threads: setting.threads,
            exclude: &self.hints.exclude,
            symbols: &|pc, _| symbols.find(pc),
            deadline: setting.deadline,
            limits: Limits::default(),
            progress: setting.progress,
        };
        analysis.run()
    }

    /// Traces the program of a test, with a file as its input: by its name, where the command says
    /// [`INPUT_FILE`], or else as its standard input. It goes to `coverage` which blocks of its code ran.
    /// Returns how it ended.
    ///
    /// # Errors
    /// [`CheckError`]
    pub fn trace(
        &self,
        setting: &Setting<'_>,
        input: Option<&Path>,
        coverage: Option<&Path>,
    ) -> Result<Ending> {
        let dir = &absolute(&self.dir)?;
        make_dir(setting.work)?;
        let names_input = self.trace.command.iter().any(|word| word.contains(INPUT_FILE));
        let mut files = Vec::new();
        // Apart from the test's own files, whatever they are called.
        let folder = absolute(setting.work)?.join("pm");
        make_dir(&folder)?;
        for pm in &self.pm {
            let path = folder.join(&pm.name);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(CheckError::File { what: "remove", path, source: error });
                }
                _ => {}
            }
            if let Some(initial) = &pm.initial {
                let initial = dir.join(initial);
                std::fs::copy(&initial, &path).map_err(CheckError::file("copy", &initial))?;
            }
            files.push(PmFile { path, len_bytes: Some(pm.size) });
        }
        let output = setting.work.join(OUTPUT);
        let operations = match self.oracle.operations {
            Some(place @ (OperationsConfig::File | OperationsConfig::Stdout)) => {
                let path = absolute(&setting.work.join("operations"))?;
                Some(OperationsLog { path, is_stdout: place == OperationsConfig::Stdout })
            }
            Some(OperationsConfig::Instruction) | None => None,
        };
        let paths: Vec<PathBuf> = files.iter().map(|file| file.path.clone()).collect();
        let tracer = UserTracer {
            pm: files,
            has_reads: false,
            has_stacks: self.trace.stacks,
            timeout: Duration::from_secs(self.trace.timeout_s),
            input: input.filter(|_| !names_input).map(absolute).transpose()?,
            output: Some(absolute(&output)?),
            operations: operations.clone(),
            coverage: coverage.map(absolute).transpose()?,
            current_dir: Some(dir.to_owned()),
            tools: setting.tools.clone(),
        };
        let command = CommandExtract::fill(&in_dir(dir, &self.trace.command), &paths);
        let log = operations.map_or_else(String::new, |log| log.path.to_string_lossy().into_owned());
        let input = input.map(absolute).transpose()?.unwrap_or_default();
        let input = input.to_string_lossy();
        let fill = |word: String| word.replace(OPERATIONS_FILE, &log).replace(INPUT_FILE, &input);
        let command = command.into_iter().map(|word| fill(word).into());
        let command: Vec<OsString> = command.collect();
        Ok(tracer.trace(&command, &absolute(setting.trace)?)?.end)
    }
}

/// A program with a folder in its name is meant relative to the test.
fn in_dir(dir: &Path, command: &[String]) -> Vec<String> {
    let mut command = command.to_vec();
    if let Some(program) = command.first_mut().filter(|program| program.contains('/')) {
        *program = dir.join(&program).to_string_lossy().into_owned();
    }
    command
}

pub(super) fn absolute(path: &Path) -> Result<PathBuf> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    std::path::absolute(path).map_err(CheckError::file("find", path))
}

/// Traces recoveries: says what they read, and how they can crash.
#[derive(Clone)]
pub struct TracedRecovery<'a> {
    /// The recovery; `{pm}` and so on are its files.
    pub command: &'a [String],
    /// Where the regions are.
    pub layout: Layout,
    /// Where files are made to say what is read.
    pub work: PathBuf,
    /// Where the program is run.
    pub current_dir: &'a Path,
    /// It is ended then.
    pub time_out: Duration,
    /// Where QEMU and the plug-in are.
    pub tools: &'a Tools,
}

impl TracedRecovery<'_> {
    /// Traces the recovery of an image, with files in `work`; the trace is among them.
    fn trace_in(
        &self,
        contents: &Contents,
        work: &Path,
        has_reads: bool,
    ) -> Result<(Result<Traced, TracerError>, PathBuf)> {
        let work = absolute(work)?;
        make_dir(&work)?;
        let files = write_files(&self.layout, contents, &work)?;
        let region = |(path, _): (&PathBuf, _)| PmFile { path: path.clone(), len_bytes: None };
        let tracer = UserTracer {
            pm: files.iter().zip(self.layout.parts()).map(region).collect(),
            has_reads,
            has_stacks: false,
            timeout: self.time_out,
            input: None,
            output: Some(work.join("output")),
            operations: None,
            coverage: None,
            current_dir: Some(self.current_dir.to_owned()),
            tools: self.tools.clone(),
        };
        let command = CommandExtract::fill(&in_dir(self.current_dir, self.command), &files);
        let command: Vec<OsString> = command.into_iter().map(OsString::from).collect();
        let trace = work.join("trace");
        Ok((tracer.trace(&command, &trace), trace))
    }
}

impl Recovery for TracedRecovery<'_> {
    fn lines_read(&mut self, contents: &Contents) -> Result<BTreeSet<u64>> {
        let (traced, trace) = self.trace_in(contents, &self.work, true)?;
        // However it ends: what it had read counts.
        traced?;
        lines_read(&mut open_trace(&trace)?)
    }
}

impl TraceRecovery for TracedRecovery<'_> {
    fn trace(&self, contents: &Contents, work: &Path) -> Result<RecoveryTrace> {
        match self.trace_in(contents, work, false)? {
            (Ok(traced), path) => {
                Ok(RecoveryTrace { path: Some(path), is_whole: traced.end != Ending::TimedOut })
            }
            // It was killed before its trace was whole.
            (Err(TracerError::Incomplete { .. } | TracerError::NoTrace { .. }), _) => {
                Ok(RecoveryTrace { path: None, is_whole: false })
            }
            (Err(error), _) => Err(error.into()),
        }
    }
}
