//! What ends the work of others is done only if that is meant.

use std::io::{IsTerminal, Write};

use clap::Args;
use fastness_base::ErrorKind;
use fastness_daemon::{ClientError, Request};
use fastness_terminal::Outcome;

use crate::connect::{connect, pool_of};
use crate::error::Result;

/// Arguments of commands that can end the work of others.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ConsentArgs {
    /// Do it although it is in use: clients and programs get errors. Without this it is refused, or, on a
    /// terminal, asked
    #[arg(short, long)]
    force: bool,
    /// Do nothing; show what it would do, and who uses it. Exit code 1: it is in use
    #[arg(short = 'n', long)]
    dry_run: bool,
}

impl ConsentArgs {
    /// Sends `request(is_forced)` to the pool with, or of, this name. `does` says what it does.
    pub(crate) fn send(
        self,
        name: &str,
        does: &str,
        request: impl Fn(bool) -> Request,
        out: &mut dyn Write,
    ) -> Result<Outcome> {
        let mut client = connect(pool_of(name))?;
        if self.dry_run {
            let dataset = name.contains('/').then(|| name.to_owned());
            let users: Vec<String> = client.call(&Request::Users { name: dataset })?;
            writeln!(out, "would {does}")?;
            for user in &users {
                writeln!(out, "in use: {user}")?;
            }
            return Ok(if users.is_empty() { Outcome::Clean } else { Outcome::Found });
        }
        let mut done = client.call(&request(self.force));
        if let Err(ClientError::Failed(failure)) = &done
            && failure.kind() == ErrorKind::Retry
            && !self.force
            && is_meant(&failure.message)?
        {
            done = client.call(&request(true));
        }
        let () = done?;
        if matches!(request(true), Request::Export { .. } | Request::Destroy { .. }) {
            client.wait_end();
        }
        Ok(Outcome::Clean)
    }
}

/// Asks, if there is a terminal.
fn is_meant(text: &str) -> Result<bool> {
    let (input, mut terminal) = (std::io::stdin(), std::io::stderr());
    if !input.is_terminal() || !terminal.is_terminal() {
        return Ok(false);
    }
    write!(terminal, "{text}\nGo on? [y/N] ")?;
    let mut answer = String::new();
    input.read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
