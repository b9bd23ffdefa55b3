//! Where `top` and `pin` have their figures from: counters that processes publish, and samples.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use fastness_base::chain;
use fastness_daemon::run_dir;
use fastness_efficiency::Machine;
use fastness_efficiency::accounting::{Written, exact, known_regions};
use fastness_efficiency::sampler::{SampleError, Sampler, SamplerOptions, Tally, Target};
use fastness_pmem::counters::{Published, read_all};
use fastness_terminal::note;

use super::default_period;
use crate::error::{Context, Result, gone};

/// Which figures are taken.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct SourceArgs {
    /// Look at one process only
    #[arg(long)]
    pid: Option<u32>,
    /// Take samples only, of processes that count themselves too
    #[arg(long, conflicts_with = "exact")]
    sampled: bool,
    /// Take the counts of processes only
    #[arg(long)]
    exact: bool,
    /// Stores (AMD: operations) from one sample to the next; a prime number is best
    #[arg(long, value_name = "N", default_value_t = default_period())]
    period: u64,
    /// Pages of the buffer of each CPU, or with --pid of each thread: a power of two
    #[arg(long, value_name = "N", default_value_t = 128)]
    buffer_pages: usize,
}

/// The figures of this machine.
pub(crate) struct Sources {
    folder: PathBuf,
    pid: Option<u32>,
    counts: bool,
    sampler: Option<Sampler>,
    /// Why there are no samples.
    not_sampled: Option<String>,
    unreadable: BTreeSet<PathBuf>,
}

impl Sources {
    /// Finds out what there is.
    ///
    /// # Errors
    /// Samples are demanded, and cannot be had; nothing is demanded, and there is nothing.
    pub(crate) fn open(machine: &Machine, args: &SourceArgs) -> Result<Sources> {
        let mut sources = Sources {
            folder: run_dir()?,
            pid: args.pid,
            counts: !args.sampled,
            sampler: None,
            not_sampled: None,
            unreadable: BTreeSet::new(),
        };
        if args.exact {
            sources.not_sampled = Some("--exact".to_owned());
        } else {
            let target = args.pid.map_or(Target::All, Target::Process);
            let options = SamplerOptions { target, period: args.period, buffer_pages: args.buffer_pages };
            match Sampler::start(machine, options) {
                Ok(sampler) => sources.sampler = Some(sampler),
                Err(error) if args.sampled || matches!(error, SampleError::Options(_)) => {
                    return Err(error.into());
                }
                Err(error) => sources.not_sampled = Some(chain(&error)),
            }
        }
        if sources.sampler.is_none() && sources.published()?.processes.is_empty() {
            return Err(sources.nothing());
        }
        Ok(sources)
    }

    /// Lets time pass, and takes the samples of it.
    pub(crate) fn wait_until(&mut self, machine: &Machine, deadline: Instant) -> Result<()> {
        match &mut self.sampler {
            Some(sampler) => Ok(sampler.sample_until(machine, deadline)?),
            None => {
                std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
                Ok(())
            }
        }
    }

    /// What was written so far. A process that counts itself is not sampled as well, unless that is wanted.
    pub(crate) fn look(&mut self) -> Result<Vec<Written>> {
        let found = self.published()?;
        for path in &found.unreadable {
            if self.unreadable.insert(path.clone()) {
                let shown = path.display();
                note(format_args!(
                    "fastness: {shown} has no counters of this version; its process is not shown"
                ));
            }
        }
        let mut written = if self.counts { exact(&found) } else { Vec::new() };
        if let Some(sampler) = &mut self.sampler {
            sampler.know(known_regions(&found));
            let counted: BTreeSet<u32> = written.iter().map(|row| row.pid).collect();
            written.extend(sampler.written().into_iter().filter(|row| !counted.contains(&row.pid)));
        }
        if let Some(pid) = self.pid {
            written.retain(|row| row.pid == pid);
        }
        Ok(written)
    }

    /// What the samples come from, or why there are none.
    pub(crate) fn sampling(&self) -> std::result::Result<(String, Tally), &str> {
        match (&self.sampler, &self.not_sampled) {
            (Some(sampler), _) => Ok((sampler.describe(), sampler.tally())),
            (None, why) => Err(why.as_deref().unwrap_or_default()),
        }
    }

    fn published(&self) -> Result<Published> {
        let mut found = read_all(&self.folder)
            .with_context(|| format!("cannot read counters in {}", self.folder.display()))?;
        if let Some(pid) = self.pid {
            found.processes.retain(|process| process.pid == pid);
        }
        Ok(found)
    }

    fn nothing(&self) -> crate::error::CliError {
        let who = self.pid.map_or_else(|| "no process".to_owned(), |pid| format!("not process {pid}"));
        let why = self.not_sampled.as_deref().unwrap_or_default();
        gone(format!(
            "nothing to show: {who} publishes counters in {}, and stores are not sampled: {why}",
            self.folder.display()
        ))
    }
}
