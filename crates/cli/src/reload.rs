//! `fastness reload`: certificates are read again.

use std::io::Write;

use clap::Args;
use fastness_daemon::Request;
use fastness_terminal::Outcome;

use crate::connect::ask_all;
use crate::error::Result;

/// Arguments of `fastness reload`.
#[derive(Debug, Args)]
#[command(after_help = "\
Connections go on with the certificates that they began with. If new ones cannot be used, the old ones stay,
and the exit code says so. A cache: `fastness cache reload REGION`.")]
pub(crate) struct ReloadArgs {
    /// Only this pool; otherwise all that are running
    pool: Option<String>,
}

pub(crate) fn run(args: &ReloadArgs, out: &mut dyn Write) -> Result<Outcome> {
    let all: Vec<Vec<String>> = ask_all(args.pool.as_deref(), &Request::ReloadCertificates)?;
    for address in all.concat() {
        writeln!(out, "{address}")?;
    }
    Ok(Outcome::Clean)
}
