//! `fastness log verify`.

use std::convert::Infallible;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use fastness_base::AnyError;
use fastness_pmlog::{ErrorKind, OpenOptions, RecordLog, Survey};
use fastness_terminal::Outcome;

use crate::error::Result;
use crate::log::{open_region, pool};

/// Arguments of `fastness log verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// File or device of a record log; or the name of a pool, if no file has this name
    file: PathBuf,
    /// Device of the pool, or a folder with its devices; may be repeated
    #[arg(short, long = "device", value_name = "PATH")]
    devices: Vec<PathBuf>,
}

pub(super) fn run(args: &VerifyArgs, out: &mut dyn Write) -> Result<Outcome> {
    if pool::is_pool(&args.file) {
        return pool::verify(&args.file, &args.devices, out);
    }
    let mut damages = 0;
    let survey = Survey::new(open_region(&args.file)?);
    // A torn slot is what a crash leaves; an unreadable one is not.
    for error in survey.superblocks().iter().filter_map(|copy| copy.as_ref().err()) {
        writeln!(out, "damage: {error}")?;
        damages += 1;
    }
    for error in survey.slots().iter().filter_map(|slot| slot.as_ref().err()) {
        let is_damage = error.kind() == ErrorKind::MediaFailed;
        writeln!(out, "{}: {error}", if is_damage { "damage" } else { "note (a crash can leave this)" })?;
        damages += usize::from(is_damage);
    }
    let mut entries = 0;
    for index in 0..survey.chunks() {
        let chunk = survey.chunk(index);
        entries += chunk.entries.len();
        for entry in &chunk.entries {
            if let Err(error) = entry.body {
                writeln!(out, "damage: {}: {error}", entry.entry.header.id)?;
                damages += 1;
            }
        }
        if let Some((offset, entry)) = chunk.behind {
            let (id, end) = (entry.header.id, chunk.end.region_offset);
            writeln!(out, "damage: chunk {index} ends at {end:#x}, but {id} follows at {offset:#x}")?;
            damages += 1;
        } else if chunk.end.end.is_damage() {
            writeln!(
                out,
                "damage: chunk {index} ends at {:#x}: {:?}",
                chunk.end.region_offset, chunk.end.end
            )?;
            damages += 1;
        }
    }
    let chunks = survey.chunks();
    drop(survey);
    damages += check_order(args, out)?;
    writeln!(
        out,
        "{chunks} chunks, {entries} entries read: {}",
        match damages {
            0 => "no damage".into(),
            1 => "1 place is damaged".into(),
            damages => format!("{damages} places are damaged"),
        }
    )?;
    Ok(if damages == 0 { Outcome::Clean } else { Outcome::Found })
}

/// Recovers in a dry run, which finds missing records; returns the number of damaged places.
fn check_order(args: &VerifyArgs, out: &mut dyn Write) -> Result<usize> {
    let recovery = match RecordLog::open(open_region(&args.file)?, &OpenOptions::new()) {
        Ok(recovery) => recovery,
        Err(error) => {
            writeln!(out, "damage: {:#}", AnyError::from(error))?;
            return Ok(1);
        }
    };
    match recovery.inspect(|_, _| Ok::<_, Infallible>(())) {
        Ok(replayed) => {
            writeln!(out, "{} records can be recovered", replayed.records)?;
            Ok(0)
        }
        Err(error) => {
            writeln!(out, "damage: {error}")?;
            Ok(1)
        }
    }
}
