//! `fastness pool set` and `fastness pool get`.

use std::io::Write;

use clap::Args;
use fastness_daemon::{PropertyReport, Request};
use fastness_terminal::Outcome;

use crate::connect::{ask, print_json};
use crate::error::{Result, refuse};
use crate::listing::{ListingArgs, Value, values};
use crate::pool::{assignments_first, done};

pub(super) const HELP: &str = "\
Properties:
  autoexpand     off | on             use devices that have grown at each import; without it, `pool online -e`
  autotrim       off | on             discard what is freed on the devices; `pool trim` does it for all that is free
  failmode       wait | continue      requests while the pool is suspended: wait for `fastness pool clear`, or fail
  logdata        both | pm            bytes of a synchronous write until its txg has synced: in the log on PM and in
                                      memory, or in the log alone
  feature@NAME   enabled | active     whether the pool's contents need a program that knows NAME; read-only
Examples:
  fastness pool set failmode=continue tank
  fastness pool get all tank";

/// Arguments of `fastness pool get`.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Names, separated by commas, or `all`
    property: String,
    /// The pools
    #[arg(required = true)]
    pools: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    listing: ListingArgs,
}

pub(super) fn set(words: &[String]) -> Result<Outcome> {
    let (assignments, pools) = assignments_first(words)?;
    for pool in pools {
        for (property, value) in &assignments {
            done(pool, &Request::SetPoolProperty { property: property.clone(), value: value.clone() })?;
        }
    }
    Ok(Outcome::Clean)
}

pub(super) fn get(args: &GetArgs, out: &mut dyn Write) -> Result<Outcome> {
    let wanted: Vec<&str> = args.property.split(',').collect();
    let mut found: Vec<(&str, PropertyReport)> = Vec::new();
    for pool in &args.pools {
        let all: Vec<PropertyReport> = ask(pool, &Request::PoolProperties)?;
        if let Some(unknown) =
            wanted.iter().find(|name| **name != "all" && all.iter().all(|is| is.name != **name))
        {
            return Err(refuse(format!("a pool has no property {unknown}")));
        }
        let is_wanted = |report: &PropertyReport| wanted.contains(&"all") || wanted.contains(&&*report.name);
        found.extend(all.into_iter().filter(is_wanted).map(|report| (&**pool, report)));
    }
    if args.json {
        let rows: Vec<_> = found
            .iter()
            .map(|(pool, is)| serde_json::json!({"name": pool, "property": is.name, "value": is.value, "source": is.source}))
            .collect();
        print_json(out, &rows)?;
    } else {
        let rows = found.into_iter().map(|(pool, property)| Value::new(pool, property)).collect();
        return values(&args.listing, rows, out);
    }
    Ok(Outcome::Clean)
}
