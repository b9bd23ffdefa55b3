//! `fastness log info`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use fastness_pmlog::{LogMedium, Survey};
use fastness_terminal::{Outcome, fields, note};
use serde_json::json;

use crate::error::Result;
use crate::log::{open_region, report};

/// Arguments of `fastness log info`.
#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// File or device of the log
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &InfoArgs, out: &mut dyn Write) -> Result<Outcome> {
    let range = open_region(&args.file)?;
    let info = LogMedium::region_info(&range).expect("a real region has information").clone();
    let survey = Survey::new(range);
    if args.json {
        let superblock = survey.superblock().ok();
        let mut value = report::region_json(&info, superblock.map(|superblock| &superblock.geometry));
        value["uuid"] = json!(superblock.map(|superblock| superblock.uuid.to_string()));
        value["log_number"] = json!(survey.slot().ok().map(|slot| slot.log_number));
        writeln!(out, "{value:#}")?;
        return Ok(Outcome::Clean);
    }
    match survey.superblock() {
        Ok(superblock) => {
            report::region(out, &info, &superblock.geometry)?;
            fields(
                out,
                &[("uuid", superblock.uuid.to_string()), ("bad blocks", info.bad_blocks.to_string())],
            )?;
        }
        Err(error) => {
            writeln!(out, "{info}")?;
            note(format_args!("{}: {error}", args.file.display()));
        }
    }
    Ok(Outcome::Clean)
}
