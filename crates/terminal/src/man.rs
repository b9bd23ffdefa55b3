//! Manual pages, from the same source as `--help`.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Command};

use crate::exit::Outcome;
use crate::failure::Failure;

/// Arguments of `man`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  man | man -l -\n  man --dir /usr/local/share/man/man1")]
pub struct ManArgs {
    /// Write a page for each command into this folder, instead of printing the main page
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// Prints the page of a program, or writes one for each command into a folder.
///
/// `program`: the command line of the whole program.
///
/// # Errors
/// The folder or a page cannot be written.
pub fn man(args: &ManArgs, program: Command, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let program = program.disable_help_subcommand(true);
    match &args.dir {
        Some(dir) => {
            let cannot = |what, error| {
                Failure::from(error).while_doing(format_args!("cannot {what} {}", dir.display()))
            };
            fs::create_dir_all(dir).map_err(|error| cannot("create", error))?;
            clap_mangen::generate_to(program, dir).map_err(|error| cannot("write into", error))?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(program).render(&mut page)?;
            out.write_all(&page)?;
        }
    }
    Ok(Outcome::Clean)
}
