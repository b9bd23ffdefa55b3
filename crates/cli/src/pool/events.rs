//! `fastness pool events`.

use std::io::Write;

use clap::Args;
use fastness_daemon::{EventReport, PoolReport, Request};

use crate::connect::{ask_all, print_json};
use crate::error::Result;
use crate::exit::Outcome;
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
            ("time", |(_, event)| Cell::text(utc(event.at_unix_s))),
            ("pool", |(pool, _)| Cell::text(pool)),
            ("times", |(_, event)| Cell::Number(event.times)),
            ("event", |(_, event)| Cell::text(&event.text)),
        ],
        others: &[("seconds", |(_, event)| Cell::Number(event.at_unix_s))],
        more: &|_, _| None,
    };
    listing.write(out, &args.listing, events)?;
    Ok(Outcome::Clean)
}

/// Seconds since 1970 as a date and a time of day, UTC.
pub(super) fn utc(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86400, seconds % 86400);
    // Years begin in March, so that the leap day is the last. 400 years have 146097 days.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let of_years = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * of_years + of_years / 4 - of_years / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = of_years + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (951_868_799, "2000-02-29 23:59:59"),
            (951_868_800, "2000-03-01 00:00:00"),
            (1_709_210_096, "2024-02-29 12:34:56"),
            (1_735_689_599, "2024-12-31 23:59:59"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }
}
