//! `fastness pool history`.

use std::io::Write;

use clap::Args;
use fastness_base::Moment;
use fastness_daemon::{HistoryReport, Request};
use fastness_terminal::Outcome;

use crate::connect::{ask, print_json, running_names};
use crate::error::Result;
use crate::listing::{Cell, Listing, ListingArgs};

/// Arguments of `fastness pool history`.
#[derive(Debug, Args)]
#[command(
    after_help = "The latest 100 commands that changed something. A crash may lose those of the last seconds."
)]
pub(crate) struct HistoryArgs {
    /// Show only this pool
    pool: Option<String>,
    /// Print JSON: an array with an object for each command
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    listing: ListingArgs,
}

pub(super) fn run(args: &HistoryArgs, out: &mut dyn Write) -> Result<Outcome> {
    let names = match &args.pool {
        Some(pool) => vec![pool.clone()],
        None => running_names()?,
    };
    let mut all = Vec::new();
    for pool in names {
        let history: Vec<HistoryReport> = ask(&pool, &Request::History)?;
        all.extend(history.into_iter().map(|entry| (pool.clone(), entry)));
    }
    if args.json {
        let entry = |(pool, entry): &(String, HistoryReport)| {
            serde_json::json!({"pool": pool, "at_unix_s": entry.at_unix_s, "user": entry.user, "host": entry.host,
                "command": entry.command})
        };
        print_json(out, &all.iter().map(entry).collect::<Vec<_>>())?;
        return Ok(Outcome::Clean);
    }
    let listing = Listing::<(String, HistoryReport)> {
        shown: &[
            ("time", |(_, entry)| Cell::text(Moment::of(entry.at_unix_s).to_string())),
            ("pool", |(pool, _)| Cell::text(pool)),
            ("user", |(_, entry)| Cell::Number(u64::from(entry.user))),
            ("host", |(_, entry)| Cell::text(&entry.host)),
            ("command", |(_, entry)| Cell::text(&entry.command)),
        ],
        others: &[("seconds", |(_, entry)| Cell::Number(entry.at_unix_s))],
        more: &|_, _| None,
        more_names: &[],
    };
    listing.write(out, &args.listing, all)?;
    Ok(Outcome::Clean)
}
