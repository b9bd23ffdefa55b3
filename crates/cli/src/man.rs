//! `fastness man`: manual pages, from the same source as `--help`.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory};

use crate::exit::Outcome;

/// Arguments of `fastness man`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  fastness man | man -l -\n  fastness man --dir /usr/local/share/man/man1"
)]
pub(crate) struct ManArgs {
    /// Write a page for each command into this folder, instead of the main one to standard output
    #[arg(long)]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &ManArgs, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    let command = crate::Cli::command().disable_help_subcommand(true);
    match &args.dir {
        Some(dir) => {
            fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
            clap_mangen::generate_to(command, dir)
                .with_context(|| format!("cannot write into {}", dir.display()))?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            out.write_all(&page)?;
        }
    }
    Ok(Outcome::Clean)
}
