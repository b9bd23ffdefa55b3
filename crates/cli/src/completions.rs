//! `fastness completions`.

use std::io::Write;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::error::Result;
use crate::exit::Outcome;

/// Arguments of `fastness completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// `program`: the command line of the whole program.
pub(crate) fn run(args: &CompletionsArgs, mut program: Command, out: &mut dyn Write) -> Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "fastness", &mut script);
    out.write_all(&script)?;
    Ok(Outcome::Clean)
}
