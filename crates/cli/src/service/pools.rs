//! The thread of a pool: import, serve, wait for the end.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use fastness_base::chain;
use fastness_daemon::{Address, Control, Ending, ImportWatch, Level, Node, run_dir, say, volume_socket};

use crate::config::PoolPlan;
use crate::error::{CliError, Context, Result};
use crate::pool::importable;
use crate::progress;
use crate::start::{listen, refuse_running};

/// What a pool's thread says of itself, by the pool's name.
pub(super) enum Event {
    /// What the import does.
    Importing(String, String),
    /// It is imported, and what can be served is served.
    Running(String, Arc<Node>),
    /// It was not imported; it will be tried again.
    Failed(String, CliError),
    /// It is exported, or was not exported cleanly.
    Ended(String, Result<Ending>),
    /// The service is to end.
    Signal,
}

/// Pools that are found and not among those that are named.
pub(super) fn others(named: &[PoolPlan]) -> Vec<PoolPlan> {
    let mut found: Vec<_> = importable().into_iter().map(|pool| pool.config.name).collect();
    found.sort();
    found.dedup();
    found.retain(|name| named.iter().all(|plan| plan.name != *name));
    found.iter().map(|name| PoolPlan::named(name)).collect()
}

/// Starts the thread of a pool. It ends with the pool, or when nobody listens to its events.
pub(super) fn start(plan: PoolPlan, retry: Duration, events: Sender<Event>) -> Result<()> {
    let name = format!("pool {}", plan.name);
    let thread = std::thread::Builder::new().name(name).spawn(move || run(&plan, retry, &events));
    thread.context("cannot start a thread for a pool").map(drop)
}

fn run(plan: &PoolPlan, retry: Duration, events: &Sender<Event>) {
    let name = || plan.name.clone();
    let mut result = begin(plan, events);
    while let Err(error) = result {
        if events.send(Event::Failed(name(), error)).is_err() {
            return;
        }
        std::thread::sleep(retry);
        result = begin(plan, events);
    }
    let Ok((node, control)) = result else { return };
    let _ = events.send(Event::Running(name(), node.clone()));
    let ended =
        node.run().context("the pool was not exported cleanly; the next import finds its last synced state");
    drop(control);
    let _ = events.send(Event::Ended(name(), ended));
}

fn begin(plan: &PoolPlan, events: &Sender<Event>) -> Result<(Arc<Node>, Control)> {
    refuse_running(&plan.name)?;
    let (sender, name) = (events.clone(), plan.name.clone());
    let watch = ImportWatch::new(move |report| {
        let _ = sender.send(Event::Importing(name.clone(), progress::text(report)));
    });
    let node = plan.import().node(watch)?;
    match listen(&node) {
        Ok(control) => {
            serve(plan, &node);
            Ok((node, control))
        }
        Err(error) => {
            node.give_up();
            Err(error)
        }
    }
}

/// Serves and mounts what the configuration names; says what cannot be.
fn serve(plan: &PoolPlan, node: &Node) {
    let served = node.status().served;
    for volume in &plan.volumes {
        let name = &volume.name;
        let address = volume.address.clone().map_or_else(|| default_address(name), Ok);
        let result = address.and_then(|address| {
            if served.iter().any(|known| known.volume == *name && known.address == address) {
                return Ok(());
            }
            node.serve(name, &address, &volume.access, volume.is_read_only, false)
                .map(drop)
                .map_err(CliError::from)
        });
        if let Err(error) = result {
            say(Level::Error, format_args!("{name} is not served: {}", error.texts().join(": ")));
        }
    }
    for mount in &plan.mounts {
        let at = Address::Mount(mount.path.display().to_string());
        if served.iter().any(|known| known.volume == mount.name && known.address == at) {
            continue;
        }
        if let Err(failure) = node.mount(&mount.name, &mount.path, mount.options, false) {
            let path = Path::display(&mount.path);
            say(Level::Error, format_args!("{} is not mounted at {path}: {}", mount.name, chain(&failure)));
        }
    }
}

fn default_address(volume: &str) -> Result<Address> {
    Ok(Address::Unix(volume_socket(&run_dir()?, volume)?.display().to_string()))
}
