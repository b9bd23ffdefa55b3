//! Talking to running pools.

use std::io::Write;

use fastness_daemon::{Client, ClientError, JobReport, Request, control_socket, run_dir, running_pools};
use fastness_terminal::progress_bar;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Context, Result, not_running, refuse};

/// A connection to the process that has the pool.
pub(crate) fn connect(pool: &str) -> Result<Client> {
    Ok(Client::connect(&control_socket(&run_dir()?, pool)?, pool)?)
}

/// The pool of a dataset's full name.
pub(crate) fn pool_of(dataset: &str) -> &str {
    dataset.split('/').next().unwrap_or(dataset)
}

/// One request to the pool that a dataset belongs to.
pub(crate) fn ask<T: DeserializeOwned>(dataset: &str, request: &Request) -> Result<T> {
    Ok(connect(pool_of(dataset))?.call(request)?)
}

/// One request to a pool, or to every running one. A pool that ends in the meantime is left out.
pub(crate) fn ask_all<T: DeserializeOwned>(pool: Option<&str>, request: &Request) -> Result<Vec<T>> {
    if let Some(pool) = pool {
        return Ok(vec![ask(pool, request)?]);
    }
    let dir = run_dir()?;
    let names = running_pools(&dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let mut answers = Vec::new();
    for name in names {
        let client = Client::connect(&control_socket(&dir, &name)?, &name);
        match client.and_then(|mut client| client.call(request)) {
            Ok(answer) => answers.push(answer),
            Err(ClientError::NotRunning { .. } | ClientError::Gone { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(answers)
}

/// Names of the pools that run.
pub(crate) fn running_names() -> Result<Vec<String>> {
    let running: Vec<fastness_daemon::PoolReport> = ask_all(None, &Request::Status)?;
    Ok(running.into_iter().map(|pool| pool.name).collect())
}

/// The pool that a command without a name means: the only one that runs.
pub(crate) fn only_pool(pool: Option<String>) -> Result<String> {
    if let Some(pool) = pool {
        return Ok(pool);
    }
    let running: Vec<fastness_daemon::PoolReport> = ask_all(None, &Request::Status)?;
    match &running[..] {
        [one] => Ok(one.name.clone()),
        [] => Err(not_running("no pool is running; `fastness up` creates one")),
        several => {
            let names: Vec<_> = several.iter().map(|pool| pool.name.as_str()).collect();
            Err(refuse(format!("several pools are running; name one of them: {}", names.join(", "))))
        }
    }
}

/// A request for long work, with a progress bar on a terminal.
pub(crate) fn follow(pool: &str, request: &Request) -> Result<JobReport> {
    let bar = progress_bar("{msg} {wide_bar} {bytes} of about {total_bytes}, {bytes_per_sec}, {eta} left");
    let result = connect(pool)?.call_with(request, &mut |report| {
        bar.set_message(report.what.clone());
        bar.set_length(report.total_bytes.max(report.done_bytes));
        bar.set_position(report.done_bytes);
    });
    bar.finish_and_clear();
    Ok(result?)
}

/// Prints an answer as JSON.
pub(crate) fn print_json(out: &mut dyn Write, value: &impl Serialize) -> Result<()> {
    writeln!(out, "{}", serde_json::to_string_pretty(value)?)?;
    Ok(())
}
