//! Starting the process that runs a pool, in the foreground or in the background.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use fastness_base::ErrorKind;
use fastness_daemon::{
    Among, Client, Control, Ending, Failure, ImportStep, ImportWatch, Level, Node, NodeOptions, PATIENCE,
    PoolReport, Request, Search, control_socket, find_devices, run_dir, running_pools, say, speak_as_service,
    speaks_as_service,
};
use fastness_store::{Consent, ImportOptions, MissingLog, Places, PoolOptions};
use fastness_terminal::{Outcome, note, size};

use crate::error::{Context, Result, busy};
use crate::notify::{State, notify};
use crate::progress::Progress;

mod background;

use background::Announcement;

const CACHE: &str = "256M";
const META_CACHE: &str = "128M";
const DIRTY_MAX: &str = "512M";
const TXG_TIMEOUT: &str = "5";

/// Limits of the process that runs a pool.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Bounds")]
pub(crate) struct BoundArgs {
    /// Size of the block cache
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = CACHE)]
    pub(crate) cache: u64,
    /// Size of the metadata cache
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = META_CACHE)]
    pub(crate) meta_cache: u64,
    /// Limit of unsynced data in memory; writers are slowed down as it fills
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = DIRTY_MAX)]
    pub(crate) dirty_max: u64,
    /// Seconds after which changes become durable without a flush
    #[arg(long, value_name = "SECONDS", default_value = TXG_TIMEOUT, value_parser = txg_timeout)]
    pub(crate) txg_timeout: Duration,
    /// Seconds to wait for devices and regions that another process has; a killed one keeps them a moment
    #[arg(long, value_name = "SECONDS", default_value_t = PATIENCE.as_secs())]
    pub(crate) wait: u64,
}

impl Default for BoundArgs {
    fn default() -> BoundArgs {
        let size = |text| size::parse(text).expect("a size");
        BoundArgs {
            cache: size(CACHE),
            meta_cache: size(META_CACHE),
            dirty_max: size(DIRTY_MAX),
            txg_timeout: txg_timeout(TXG_TIMEOUT).expect("a time"),
            wait: PATIENCE.as_secs(),
        }
    }
}

/// How long to wait for an answer from a process that may be running the pool.
const ANSWER: Duration = Duration::from_secs(5);

/// Seconds, with a fraction or without.
fn txg_timeout(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| (0.1..=600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| format!("{text} is not a number from 0.1 to 600"))
}

impl BoundArgs {
    pub(crate) fn options(&self) -> PoolOptions {
        PoolOptions {
            cache_bytes: self.cache,
            meta_cache_bytes: self.meta_cache as usize,
            dirty_max_bytes: self.dirty_max.max(16 << 20),
            txg_timeout: self.txg_timeout,
            ..PoolOptions::default()
        }
    }

    /// How long to wait for devices that are in use.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs(self.wait)
    }

    /// The same as arguments.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let pairs = [
            ("--cache", self.cache.to_string()),
            ("--meta-cache", self.meta_cache.to_string()),
            ("--dirty-max", self.dirty_max.to_string()),
            ("--txg-timeout", self.txg_timeout.as_secs_f64().to_string()),
            ("--wait", self.wait.to_string()),
        ];
        pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }
}

/// What to import, and how.
#[derive(Debug, Clone)]
pub(crate) struct Import {
    pub(crate) name: String,
    /// Devices, or folders of them; empty for where they were last.
    pub(crate) places: Vec<PathBuf>,
    pub(crate) is_forced: bool,
    pub(crate) is_read_only: bool,
    pub(crate) is_degraded: bool,
    /// It was destroyed.
    pub(crate) is_destroyed: bool,
    /// The pool's name from now on.
    pub(crate) new_name: Option<String>,
    /// Nothing is served or mounted.
    pub(crate) is_quiet: bool,
    /// Possible new paths of the log's regions.
    pub(crate) log_paths: Vec<PathBuf>,
    /// Which parts of the log may be given up.
    pub(crate) consent: Consent,
    pub(crate) bounds: BoundArgs,
}

impl Import {
    pub(crate) fn node(&self, watch: ImportWatch) -> Result<Arc<Node>> {
        let import = ImportOptions {
            is_forced: self.is_forced,
            allows_degraded: self.is_degraded,
            allows_destroyed: self.is_destroyed,
            rename: self.new_name.clone(),
            missing_log: if self.consent.missing { MissingLog::Drop } else { MissingLog::Refuse },
            ..ImportOptions::default()
        };
        let pool = PoolOptions { is_read_only: self.is_read_only, ..self.bounds.options() };
        let (log_paths, consent) = (self.log_paths.clone(), self.consent);
        let patience = self.bounds.patience();
        let places = Places { log_paths, consent, patience, ..Places::default() };
        let mut options = NodeOptions { pool, remembers: true, is_quiet: self.is_quiet, places, watch };
        options.watch.begin(ImportStep::Devices);
        let mut tell = |search: Search<'_>| match search {
            Search::Waiting(devices) => options.watch.waits_for(devices),
            search => tell_search(search),
        };
        let among = if self.is_destroyed { Among::Destroyed } else { Among::Existing };
        let found = find_devices(&self.name, &self.places, among, patience, &mut tell)?;
        // `name` may be a GUID. A pool without a control socket would be out of reach.
        refuse_running(self.new_name.as_ref().unwrap_or(&found.name))?;
        options.places.witnesses = found.regions;
        Ok(Node::import(&found.devices, &import, options)?)
    }

    /// Runs the pool until it is exported. `announce`: a parent reads [`Announcement`]s from standard output.
    pub(crate) fn foreground(&self, announce: bool, out: &mut dyn Write) -> Result<Outcome> {
        speak_as_service();
        if announce {
            // A session of its own, which neither Ctrl-C nor the end of the terminal reaches.
            let _ = rustix::process::setsid();
        }
        let progress = (!announce).then(Progress::start);
        let watch = progress.as_ref().map_or_else(background::watch, Progress::watch);
        let started = self.node(watch).and_then(|node| {
            let begun = listen(&node).and_then(|control| {
                node.end_on_signals()?;
                Ok(control)
            });
            match begun {
                Ok(control) => Ok((node, control)),
                Err(error) => {
                    node.give_up();
                    Err(error)
                }
            }
        });
        drop(progress);
        let (node, control) = match started {
            Ok(started) => started,
            Err(error) if announce => {
                let kind = error.kind().unwrap_or(ErrorKind::Bug);
                let (message, causes) = (error.texts()[0].clone(), error.texts()[1..].to_vec());
                let failure = Failure { kind: kind.name().to_owned(), message, causes };
                Announcement::Failed(failure).say(out)?;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        if announce {
            // If the parent has ended, the pool stays imported all the same.
            let _ = Announcement::Ready(node.name()).say(out);
        } else {
            writeln!(out, "pool {} is imported; Ctrl-C exports it", node.name())?;
            out.flush()?;
        }
        until_end(&node, control)?;
        Ok(Outcome::Clean)
    }
}

/// The pool of this name or GUID, if a process is running it and answers.
pub(crate) fn running(name: &str) -> Result<Option<PoolReport>> {
    let dir = run_dir()?;
    // Too long a name is refused here.
    control_socket(&dir, name)?;
    let others = running_pools(&dir).unwrap_or_default();
    let (same, others): (Vec<_>, Vec<_>) = others.into_iter().partition(|pool| pool == name);
    let status = |pool: &String| -> Result<PoolReport> {
        let mut client = Client::connect_within(&control_socket(&dir, pool)?, pool, ANSWER)?;
        Ok(client.call(&Request::Status)?)
    };
    // One that is being exported, or does not answer: the search for its devices decides.
    let found = same.iter().chain(&others).filter_map(|pool| status(pool).ok());
    Ok(found.into_iter().find(|report| report.name == name || report.guid == name))
}

/// Refuses if a process is running the pool of this name or GUID: waiting for its devices would be in vain.
pub(crate) fn refuse_running(name: &str) -> Result<()> {
    match running(name)? {
        Some(report) if report.name == name => {
            Err(busy(format!("pool {name} is already running, as process {}", report.pid)))
        }
        Some(report) => Err(busy(format!(
            "the pool with GUID {name} is already running, as pool {}, process {}",
            report.name, report.pid
        ))),
        None => Ok(()),
    }
}

/// Prints what a search for devices reports.
pub(crate) fn tell_search(search: Search<'_>) {
    if let Search::Note(text) = search {
        match speaks_as_service() {
            true => say(Level::Warning, text),
            false => note(text),
        }
    }
}

/// The control socket of a node.
pub(crate) fn listen(node: &Arc<Node>) -> Result<Control> {
    let path = control_socket(&run_dir()?, &node.name())?;
    let control = Control::start(node, &path);
    control.with_context(|| {
        format!(
            "cannot open the control socket of pool {}; is another pool with this name running?",
            node.name()
        )
    })
}

/// Waits for the end of a node, and prints how it ended. A service manager is told that it runs.
pub(crate) fn until_end(node: &Node, control: Control) -> Result<Ending> {
    notify(State::Ready);
    let ending = node
        .run()
        .context("the pool was not exported cleanly; the next import finds its last synced state")?;
    drop(control);
    match ending {
        Ending::Destroyed => say(Level::Info, format_args!("pool {} is destroyed", node.name())),
        _ => say(Level::Info, format_args!("pool {} is exported", node.name())),
    }
    Ok(ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_a_number_of_seconds_and_passed_on_as_it_was() {
        assert_eq!(txg_timeout("0.1"), Ok(Duration::from_millis(100)));
        assert_eq!(txg_timeout("5"), Ok(Duration::from_secs(5)));
        for wrong in ["0", "0.01", "601", "-5", "NaN", "inf", "5 s", ""] {
            assert!(txg_timeout(wrong).is_err(), "{wrong}");
        }
        for text in ["0.1", "0.25", "300"] {
            let timeout = txg_timeout(text).unwrap();
            assert_eq!(txg_timeout(&timeout.as_secs_f64().to_string()), Ok(timeout));
        }
    }
}
