//! `fastness man`: manual pages, from the same source as `--help`.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Command};

use crate::error::{Context, Result};
use crate::exit::Outcome;

/// Arguments of `fastness man`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  fastness man | man -l -\n  fastness man --dir /usr/local/share/man/man1"
)]
pub(crate) struct ManArgs {
    /// Write a page for each command into this folder, instead of printing the main page
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// `program`: the command line of the whole program.
pub(crate) fn run(args: &ManArgs, program: Command, out: &mut dyn Write) -> Result<Outcome> {
    let program = program.disable_help_subcommand(true);
    match &args.dir {
        Some(dir) => {
            fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
            clap_mangen::generate_to(program, dir)
                .with_context(|| format!("cannot write into {}", dir.display()))?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(program).render(&mut page)?;
            out.write_all(&page)?;
        }
    }
    Ok(Outcome::Clean)
}
