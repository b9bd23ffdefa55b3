//! What pools answer, and which of them do not.

use std::path::Path;
use std::time::Duration;

use fastness_daemon::{
    Client, ClientError, IoReport, PoolReport, Request, control_socket, run_dir, running_pools,
};

use super::text::Text;
use super::{io, pools};
use crate::error::{Context, Result};

/// How long a pool may take for an answer: what scrapes waits for all of them.
const ANSWER: Duration = Duration::from_secs(3);

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Whether each pool answers.
    up: Vec<(String, bool)>,
    pools: Vec<PoolReport>,
    io: Vec<IoReport>,
}

/// Which pools are asked.
#[derive(Debug, Clone)]
pub(crate) enum Wanted {
    /// This one.
    One(String),
    /// All that run, and these, which should.
    All(Vec<String>),
}

impl Wanted {
    pub(super) fn of(pool: Option<&String>) -> Wanted {
        pool.map_or(Wanted::All(Vec::new()), |pool| Wanted::One(pool.clone()))
    }
}

/// Asks pools. One that does not answer is seen as such, and holds nobody up.
pub(super) fn look(wanted: &Wanted) -> Result<Seen> {
    let dir = run_dir()?;
    let names = match wanted {
        Wanted::One(pool) => vec![pool.clone()],
        Wanted::All(known) => {
            let mut names = running_pools(&dir).with_context(|| format!("cannot read {}", dir.display()))?;
            names.extend(known.iter().cloned());
            names.sort();
            names.dedup();
            names
        }
    };
    let answers: Vec<_> = std::thread::scope(|scope| {
        let asked: Vec<_> = names.iter().map(|name| scope.spawn(|| ask(&dir, name, ANSWER))).collect();
        asked.into_iter().map(|asked| asked.join().ok().and_then(Result::ok)).collect()
    });
    let mut seen = Seen::default();
    for (name, answer) in names.into_iter().zip(answers) {
        seen.up.push((name, answer.is_some()));
        if let Some((pool, io)) = answer {
            seen.pools.push(pool);
            seen.io.push(io);
        }
    }
    Ok(seen)
}

fn ask(dir: &Path, name: &str, patience: Duration) -> Result<(PoolReport, IoReport)> {
    let mut client = Client::connect_within(&control_socket(dir, name)?, name, patience)?;
    let both: Result<_, ClientError> =
        (|| Ok((client.call(&Request::Status)?, client.call(&Request::Io)?)))();
    Ok(both?)
}

impl Seen {
    pub(super) fn text(&self) -> String {
        let mut text = Text::default();
        text.head("fastness_build_info", "gauge", "The version of the program that answers");
        text.sample("fastness_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
        text.head("fastness_up", "gauge", "1 if the process that has the pool answers");
        for (pool, is_up) in &self.up {
            text.sample("fastness_up", &[("pool", pool)], u8::from(*is_up));
        }
        pools::of_pools(&mut text, &self.pools);
        pools::of_devices(&mut text, &self.pools);
        pools::of_jobs(&mut text, &self.pools);
        pools::of_logs(&mut text, &self.pools);
        io::of_mounts(&mut text, &self.pools);
        io::of_operations(&mut text, &self.io);
        io::of_requests(&mut text, &self.io);
        text.finish()
    }
}
