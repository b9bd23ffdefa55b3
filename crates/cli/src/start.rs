//! Becoming the process that has a pool.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use fastness_daemon::{
    Control, Ending, Failure, Node, NodeOptions, ReplayWatch, StartError, Unreadable, control_socket,
    known_devices, patiently, run_dir, scan,
};
use fastness_error::ErrorKind;
use fastness_intent::Consent;
use fastness_pool::{Device, ImportOptions, MissingLog, PoolOptions};

use crate::background::{self, Announcement};
use crate::exit::Outcome;
use crate::output::note;
use crate::size;

/// Bounds of the process that has a pool.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Bounds")]
pub(crate) struct BoundArgs {
    /// Cache of blocks
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "256M")]
    cache: u64,
    /// Cache of metadata
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "128M")]
    meta_cache: u64,
    /// Unsynced data in memory; writers are slowed down as it fills
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "512M")]
    dirty_max: u64,
    /// Seconds after which changes become durable at the latest, if nobody asks for it
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    txg_timeout: u64,
}

impl BoundArgs {
    pub(crate) fn options(&self) -> PoolOptions {
        PoolOptions {
            cache_bytes: self.cache,
            meta_cache_bytes: self.meta_cache as usize,
            dirty_max_bytes: self.dirty_max.max(16 << 20),
            txg_timeout: std::time::Duration::from_secs(self.txg_timeout),
            ..PoolOptions::default()
        }
    }

    /// The same as arguments.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let pairs = [
            ("--cache", self.cache),
            ("--meta-cache", self.meta_cache),
            ("--dirty-max", self.dirty_max),
            ("--txg-timeout", self.txg_timeout),
        ];
        pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value.to_string()]).collect()
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
    /// Where regions of the log may be, besides where they were last.
    pub(crate) log_paths: Vec<PathBuf>,
    /// What of the log may be given up.
    pub(crate) consent: Consent,
    pub(crate) bounds: BoundArgs,
}

impl Import {
    /// The devices of the pool.
    fn find(&self) -> anyhow::Result<Vec<Device>> {
        find_devices(&self.name, &self.places)
    }

    fn node(&self, replay: ReplayWatch) -> anyhow::Result<Arc<Node>> {
        let import = ImportOptions {
            is_forced: self.is_forced,
            allows_degraded: self.is_degraded,
            missing_log: if self.consent.missing { MissingLog::Drop } else { MissingLog::Refuse },
            ..ImportOptions::default()
        };
        let pool = PoolOptions { is_read_only: self.is_read_only, ..self.bounds.options() };
        let (log_paths, consent) = (self.log_paths.clone(), self.consent);
        let options =
            NodeOptions { pool, remembers: true, log_paths, consent, replay, ..NodeOptions::default() };
        Ok(Node::import(&self.find()?, &import, options)?)
    }

    /// Has the pool until somebody ends that. `announce`: a parent waits for [`Announcement`]s on standard output.
    pub(crate) fn foreground(&self, announce: bool, out: &mut dyn Write) -> anyhow::Result<Outcome> {
        if announce {
            // A session of its own: neither Ctrl-C nor the end of the terminal reaches it.
            let _ = rustix::process::setsid();
        }
        let replay = if announce { background::watch() } else { ReplayWatch::default() };
        let started = self.node(replay).and_then(|node| {
            let control = listen(&node)?;
            node.end_on_signals()?;
            Ok((node, control))
        });
        let (node, control) = match started {
            Ok(started) => started,
            Err(error) if announce => {
                let kind = crate::exit::kind_of(&error).unwrap_or(ErrorKind::Bug);
                let causes = error.chain().skip(1).map(ToString::to_string).collect();
                let failure = Failure { kind: kind.name().to_owned(), message: error.to_string(), causes };
                Announcement::Failed(failure).say(out)?;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        if announce {
            // A parent that has gone wanted the pool all the same.
            let _ = Announcement::Ready(node.name()).say(out);
        } else {
            writeln!(out, "pool {} is imported; Ctrl-C exports it", node.name())?;
            out.flush()?;
        }
        until_end(&node, control)?;
        Ok(Outcome::Clean)
    }
}

/// The devices of a pool, by its name or GUID: among `places`, or where they were last.
pub(crate) fn find_devices(name: &str, given: &[PathBuf]) -> anyhow::Result<Vec<Device>> {
    let mut places = given.to_vec();
    if places.is_empty() {
        places = known_devices(name).into_iter().map(PathBuf::from).collect();
    }
    if places.is_empty() {
        places.push(PathBuf::from("/dev"));
    }
    // A folder such as /dev always has something that others use.
    let is_named = |path: &str| places.iter().any(|place| place.as_os_str() == path);
    let is_busy =
        |unreadable: &[Unreadable]| unreadable.iter().any(|device| device.is_busy && is_named(&device.path));
    let (found, unreadable) = patiently(|| scan(&places), |(_, unreadable)| is_busy(unreadable));
    let is_it = |guid: &str| guid == name;
    let mut pools: Vec<_> = found
        .into_iter()
        .filter(|pool| pool.config.name == name || is_it(&pool.config.guid.to_string()))
        .collect();
    if pools.len() > 1 {
        let guids = pools.iter().map(|pool| pool.config.guid.to_string()).collect();
        return Err(StartError::Ambiguous { pool: name.to_owned(), guids }.into());
    }
    let Some(pool) = pools.pop() else {
        for Unreadable { path, why, .. } in
            unreadable.iter().filter(|_| !given.is_empty() || places[0] != Path::new("/dev"))
        {
            note(format_args!("{path}: {why}"));
        }
        let places = places.iter().map(|place| place.display().to_string()).collect();
        return Err(StartError::NotFound { pool: name.to_owned(), places }.into());
    };
    for path in &pool.missing {
        note(format_args!("device {path} of pool {name} was not found"));
    }
    pool.devices.iter().map(|device| Ok(Device::open(&device.path)?)).collect()
}

/// The control socket of a node.
pub(crate) fn listen(node: &Arc<Node>) -> anyhow::Result<Control> {
    let path = control_socket(&run_dir()?, &node.name());
    let control = Control::start(node, &path);
    control.with_context(|| {
        format!("pool {} cannot be controlled; is another one with this name running?", node.name())
    })
}

/// Waits for the end of a node, and says how it ended.
pub(crate) fn until_end(node: &Node, control: Control) -> anyhow::Result<Ending> {
    let ending = node
        .run()
        .context("the pool was not exported cleanly; the next import finds its last synced state")?;
    drop(control);
    match ending {
        Ending::Destroyed => note(format_args!("fastness: pool {} is destroyed", node.name())),
        _ => note(format_args!("fastness: pool {} is exported", node.name())),
    }
    Ok(ending)
}
