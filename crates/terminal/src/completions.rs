//! Completions for shells, from the same source as `--help`.

use std::io::Write;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::exit::Outcome;
use crate::failure::Failure;

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints a completion script.
///
/// `program`: the command line of the whole program.
///
/// # Errors
/// The script cannot be written.
pub fn completions(
    args: &CompletionsArgs,
    mut program: Command,
    out: &mut dyn Write,
) -> Result<Outcome, Failure> {
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, name, &mut script);
    out.write_all(&script)?;
    Ok(Outcome::Clean)
}
