//! `fastness pool events`.

use std::io::Write;

use clap::Args;
use fastness_base::Moment;
use fastness_daemon::{EventReport, PoolReport, Request};
use fastness_terminal::Outcome;

use crate::connect::{ask_all, print_json};
use crate::error::Result;
use crate::listing::{Cell, Listing, ListingArgs};

/// Arguments of `fastness pool events`.
#[derive(Debug, Args)]
#[command(
    after_help = "The latest 100 events of each pool; the file POOL.log in the folder of sockets has all."
)]
pub(crate) struct EventsArgs {
    /// Show only this pool
    pool: Option<String>,
    /// Print JSON: an array with an object for each event
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    listing: ListingArgs,
}

pub(super) fn run(args: &EventsArgs, out: &mut dyn Write) -> Result<Outcome> {
    let pools: Vec<PoolReport> = ask_all(args.pool.as_deref(), &Request::Status)?;
    let events = pools.into_iter().flat_map(|pool| {
        let PoolReport { name, events, .. } = pool;
        events.into_iter().map(move |event| (name.clone(), event))
    });
    let events: Vec<(String, EventReport)> = events.collect();
    if args.json {
        let event = |(pool, event): &(String, EventReport)| serde_json::json!({"pool": pool, "at_unix_s": event.at_unix_s, "times": event.times, "text": event.text});
        print_json(out, &events.iter().map(event).collect::<Vec<_>>())?;
        return Ok(Outcome::Clean);
    }
    let listing = Listing::<(String, EventReport)> {
        shown: &[
            ("time", |(_, event)| Cell::text(Moment::of(event.at_unix_s).to_string())),
            ("pool", |(pool, _)| Cell::text(pool)),
            ("times", |(_, event)| Cell::Number(event.times)),
            ("event", |(_, event)| Cell::text(&event.text)),
        ],
        others: &[("seconds", |(_, event)| Cell::Number(event.at_unix_s))],
        more: &|_, _| None,
        more_names: &[],
    };
    listing.write(out, &args.listing, events)?;
    Ok(Outcome::Clean)
}
