//! `fastness volume send` and `receive`.

use std::io::{IsTerminal, Write};

use clap::Args;
use fastness_daemon::{ReceivedReport, Request, SendRequest, StreamReport};
use fastness_terminal::{Outcome, note, size};
use fastness_zvol::Token;

use crate::connect::{ask, connect, pool_of};
use crate::error::{Result, refuse};

pub(crate) const SEND: &str = "\
Examples:
  fastness volume send tank/disk@mon > disk.stream
  fastness volume send tank/disk@mon | ssh other fastness volume receive -s pool/disk
  fastness volume send -i @mon tank/disk@tue | ssh other fastness volume receive -s pool/disk
  fastness volume send -n -i @mon tank/disk@tue             how long that would be
  fastness volume list -t receiving -o volume,token         after a lost connection, on the other machine
  fastness volume send -t TOKEN | ssh other fastness volume receive -s pool/disk";

/// Arguments of `fastness volume send`.
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// Full name of the snapshot
    #[arg(value_name = "VOLUME@NAME", required_unless_present = "token", conflicts_with = "token")]
    snapshot: Option<String>,
    /// Only what has changed since this snapshot, which the receiver has: VOLUME@NAME, or @NAME
    #[arg(short = 'i', value_name = "SNAPSHOT", conflicts_with = "token")]
    from: Option<String>,
    /// The rest of a stream that was interrupted
    #[arg(short, long, value_name = "TOKEN")]
    token: Option<String>,
    /// Only say how long the stream would be
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Say on standard error how long the stream is
    #[arg(short, long)]
    verbose: bool,
}

/// Arguments of `fastness volume receive`.
#[derive(Debug, Args)]
pub(crate) struct ReceiveArgs {
    /// Full name of the volume, or with a name of its own for the snapshot
    #[arg(value_name = "VOLUME[@NAME]")]
    name: String,
    /// If the stream ends early, keep what came: `volume list -t receiving -o token` says where it goes on
    #[arg(short = 's', long)]
    resumable: bool,
    /// Go back to the snapshot that an increment is on; what came after it is lost
    #[arg(short = 'F', long)]
    force: bool,
    /// Discard what came of the volume before
    #[arg(short = 'A', long, conflicts_with_all = ["resumable", "force"])]
    abort: bool,
}

pub(crate) fn send(args: SendArgs, out: &mut dyn Write) -> Result<Outcome> {
    let request = SendRequest { from: full_name(&args), snapshot: args.snapshot, token: args.token };
    let pool = match (&request.token, &request.snapshot) {
        (Some(token), _) => {
            let token: Token =
                token.parse().map_err(|_| refuse(format!("{token} is no token of `receive -s`")))?;
            pool_of(&token.name).to_owned()
        }
        (None, snapshot) => pool_of(snapshot.as_deref().unwrap_or_default()).to_owned(),
    };
    if request.from.as_ref().is_some_and(|from| pool_of(from) != pool) {
        return Err(refuse("both snapshots are in one pool"));
    }
    if args.dry_run || args.verbose {
        let report: StreamReport = ask(&pool, &Request::StreamSize(request.clone()))?;
        let text = in_words(&report, request.from.as_deref());
        if args.dry_run {
            writeln!(out, "{text}")?;
            return Ok(Outcome::Clean);
        }
        note(text);
    }
    if std::io::stdout().is_terminal() {
        return Err(refuse("a stream is nothing for a terminal: write it to a file or a pipe"));
    }
    connect(&pool)?.copy_to(&Request::Send(request), out)??;
    Ok(Outcome::Clean)
}

/// The snapshot of an increment, with the volume if that was left out.
fn full_name(args: &SendArgs) -> Option<String> {
    let from = args.from.clone()?;
    match (from.strip_prefix('@'), args.snapshot.as_deref().and_then(|to| to.split('@').next())) {
        (Some(name), Some(volume)) => Some(format!("{volume}@{name}")),
        _ => Some(from),
    }
}

fn in_words(report: &StreamReport, from: Option<&str>) -> String {
    let since = match (from, report.is_increment) {
        (Some(from), _) => format!(" since {from}"),
        (None, true) => " as an increment".to_owned(),
        (None, false) => String::new(),
    };
    let rest = match report.resumes_at {
        0 => String::new(),
        at => format!(", from byte {at} on"),
    };
    let StreamReport { snapshot, stream_bytes, data_bytes, .. } = report;
    format!("{snapshot}{since}{rest}: {stream_bytes} bytes, {data_bytes} of them data")
}

pub(crate) fn receive(args: ReceiveArgs, out: &mut dyn Write) -> Result<Outcome> {
    if args.abort {
        let () = ask(&args.name, &Request::AbortReceive { name: args.name.clone() })?;
        return Ok(Outcome::Clean);
    }
    let mut input = std::io::stdin().lock();
    if input.is_terminal() {
        return Err(refuse("a stream comes from a file or a pipe, not from a terminal"));
    }
    let client = connect(pool_of(&args.name))?;
    let request = Request::Receive { name: args.name, is_resumable: args.resumable, is_forced: args.force };
    let report: ReceivedReport = client.copy_from(&request, &mut input)??;
    writeln!(out, "{} received, with {} of data", report.snapshot, size::show(report.data_bytes))?;
    Ok(Outcome::Clean)
}
