//! `fastness start`: pools as a service, as a configuration file has them.
//!
//! # Design
//! A thread for each pool imports it, serves what is to be served, and stays until it is exported
//! ([`pools`]). This thread hears of it, tells the service manager ([`manager`]), and looks whether the
//! pools' own threads move ([`watch`]). A pool that cannot be imported is tried again and again, and holds
//! up no other; if there is no pool at all, the service ends, and says why.
//!
//! # Shutdown
//! SIGINT, SIGTERM and SIGHUP export all pools that run. An import in progress ends with the process: the
//! next one does what it left.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use clap::Args;
use fastness_daemon::{Ending, Level, Node, on_signals, say, speak_as_service};
use fastness_terminal::Outcome;

use crate::config::{Config, PLACE, PoolPlan};
use crate::error::{CliError, Result, refuse};
use crate::metrics::{self, Wanted};

mod manager;
mod pools;
mod watch;

use manager::Manager;
use pools::Event;
use watch::Watch;

const EXAMPLES: &str = "\
Examples:
  fastness start
  fastness start --config tank.toml
  fastness start --pool tank                 only this pool of the file, and no counters
SIGTERM, SIGINT and SIGHUP export all pools and end it. A service manager is told when all pools are imported, and
while they move (docs/guide/service.md).";

/// The longest time between two looks at the pools.
const LOOK: Duration = Duration::from_millis(500);

/// Arguments of `fastness start`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StartArgs {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = PLACE)]
    config: PathBuf,
    /// Run only this pool of it, and serve no counters; may be repeated
    #[arg(long = "pool", value_name = "POOL")]
    pools: Vec<String>,
    /// Seconds until a pool that could not be imported is tried again
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    retry: u64,
}

pub(crate) fn run(args: &StartArgs, out: &mut dyn Write) -> Result<Outcome> {
    let mut config = Config::load(&args.config)?;
    let file = args.config.display();
    if !args.pools.is_empty() {
        if let Some(unknown) =
            args.pools.iter().find(|name| config.pools.iter().all(|pool| pool.name != **name))
        {
            return Err(refuse(format!("{file} has no [pools.{unknown}]")));
        }
        config.pools.retain(|pool| args.pools.contains(&pool.name));
        (config.metrics, config.imports_all) = (None, false);
    }
    speak_as_service();
    std::panic::set_hook(Box::new(|panic| say(Level::Error, panic)));
    if config.imports_all {
        config.pools.extend(pools::others(&config.pools));
    }
    if config.pools.is_empty() {
        return Err(refuse(format!("{file} names no pool; `fastness config example` shows how")));
    }
    let (sender, events) = channel();
    let signal = sender.clone();
    on_signals(move || {
        // If the receiver is gone, the process is ending anyway.
        let _ = signal.send(Event::Signal);
    })?;
    let names: Vec<_> = config.pools.iter().map(|pool| pool.name.clone()).collect();
    let _counters = config.metrics.map(|address| metrics::serve(address, Wanted::All(names))).transpose()?;
    if let Some(server) = &_counters {
        say(Level::Info, format_args!("counters are at http://{}/metrics", server.address()));
    }
    let mut service = Service { pools: BTreeMap::new(), manager: Manager::of_environment(), ends: false };
    for plan in config.pools {
        service.pools.insert(plan.name.clone(), State::Importing(String::new()));
        pools::start(plan, Duration::from_secs(args.retry), sender.clone())?;
    }
    writeln!(out, "{} pools; Ctrl-C exports them", service.pools.len())?;
    out.flush()?;
    service.run(&events)
}

/// What has become of a pool.
enum State {
    /// What the import does.
    Importing(String),
    Running(Arc<Node>, Watch),
    /// It is tried again later.
    Failed(CliError),
    /// It was exported, or destroyed.
    Ended,
}

struct Service {
    pools: BTreeMap<String, State>,
    manager: Manager,
    /// A signal has come.
    ends: bool,
}

impl Service {
    fn run(&mut self, events: &Receiver<Event>) -> Result<Outcome> {
        let mut failure = None;
        loop {
            match events.recv_timeout(self.manager.period().min(LOOK)) {
                Ok(event) => failure = self.hear(event).or(failure),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.tell_manager();
            if self.is_over() {
                break;
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        // Nothing was ever imported: the last failure is that of the service.
        let failed = std::mem::take(&mut self.pools).into_values().find_map(|state| match state {
            State::Failed(error) if !self.ends => Some(error),
            _ => None,
        });
        failed.map_or(Ok(Outcome::Clean), Err)
    }

    /// Takes note of an event. Returns why a pool was not exported cleanly.
    fn hear(&mut self, event: Event) -> Option<CliError> {
        match event {
            Event::Signal => {
                self.ends = true;
                self.manager.stopping();
                say(Level::Info, "a signal ends the service");
                self.running().for_each(|(node, _)| node.end());
            }
            Event::Importing(name, text) => {
                self.manager.extend_start();
                self.set(&name, State::Importing(text));
            }
            Event::Running(name, node) => {
                if self.ends {
                    node.end();
                }
                say(Level::Info, format_args!("pool {name} is imported"));
                self.set(&name, State::Running(node, Watch::default()));
            }
            Event::Failed(name, error) => {
                let text = error.texts().join(": ");
                let is_news = match self.pools.get(&name) {
                    Some(State::Failed(before)) => before.texts() != error.texts(),
                    _ => true,
                };
                if is_news {
                    say(Level::Error, format_args!("pool {name} is not imported: {text}"));
                }
                self.set(&name, State::Failed(error));
            }
            Event::Ended(name, result) => {
                self.set(&name, State::Ended);
                match result {
                    Ok(Ending::Destroyed) => say(Level::Info, format_args!("pool {name} is destroyed")),
                    Ok(_) => say(Level::Info, format_args!("pool {name} is exported")),
                    Err(error) => return Some(error),
                }
            }
        }
        None
    }

    fn set(&mut self, name: &str, state: State) {
        self.pools.insert(name.to_owned(), state);
    }

    fn running(&mut self) -> impl Iterator<Item = (&Arc<Node>, &mut Watch)> {
        self.pools.values_mut().filter_map(|state| match state {
            State::Running(node, watch) => Some((&*node, watch)),
            _ => None,
        })
    }

    fn tell_manager(&mut self) {
        let now = Instant::now();
        if self.pools.values().all(|state| !matches!(state, State::Importing(_))) {
            self.manager.ready();
        }
        self.manager.status(self.words());
        let patience = self.manager.period();
        let move_on = self.running().map(|(node, watch)| watch.moves(node.pulse(), now, patience));
        // All are looked at.
        let all_move = move_on.fold(true, |all, one| all & one);
        self.manager.tend(now, all_move);
    }

    /// A line about all pools.
    fn words(&self) -> String {
        let of = |name: &String, state: &State| match state {
            State::Importing(text) if text.is_empty() => format!("{name}: importing"),
            State::Importing(text) => format!("{name}: {text}"),
            State::Running(node, _) if node.pool().is_suspended() => format!("{name}: suspended"),
            State::Running(..) => format!("{name}: running"),
            State::Failed(error) => format!("{name}: {}", error.texts().join(": ")),
            State::Ended => format!("{name}: exported"),
        };
        let all: Vec<_> = self.pools.iter().map(|(name, state)| of(name, state)).collect();
        all.join("; ").replace('\n', " ")
    }

    /// Whether nothing runs and nothing will.
    fn is_over(&self) -> bool {
        let is_left = |state: &State| match state {
            State::Running(..) => true,
            State::Importing(_) => !self.ends,
            State::Failed(_) => !self.ends && self.pools.values().any(|state| matches!(state, State::Ended)),
            State::Ended => false,
        };
        !self.pools.values().any(is_left)
    }
}

impl PoolPlan {
    fn import(&self) -> crate::start::Import {
        crate::start::Import {
            name: self.name.clone(),
            places: self.devices.clone(),
            is_forced: false,
            is_read_only: self.is_read_only,
            is_degraded: self.is_degraded,
            is_destroyed: false,
            new_name: None,
            is_quiet: !self.restores,
            log_paths: self.log.clone(),
            consent: fastness_store::Consent::NONE,
            bounds: self.bounds.clone(),
        }
    }
}
