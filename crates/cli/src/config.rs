//! `fastness config`: the configuration file of `fastness start`.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use fastness_terminal::{Outcome, note};

use crate::error::{Context, Result, refuse};

mod keys;
mod plan;
mod shared;

#[cfg(test)]
mod tests;

use keys::Mistake;
pub(crate) use plan::{Config, PoolPlan};

/// Where it is unless another file is named.
pub(crate) const PLACE: &str = "/etc/fastness/config.toml";
/// What `fastness config example` prints, and packages install.
const EXAMPLE: &str = include_str!("config/example.toml");
/// Longest file: thousands of volumes.
const BYTES_MAX: u64 = 1 << 20;

/// Commands on configuration files.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Say all that is wrong in a file, each with its line; nothing is started or opened
    Check {
        /// The file
        #[arg(default_value = PLACE)]
        file: PathBuf,
    },
    /// Print a file with all keys and their defaults, as comments
    Example,
}

pub(crate) fn run(command: &ConfigCommand, out: &mut dyn Write) -> Result<Outcome> {
    match command {
        ConfigCommand::Example => out.write_all(EXAMPLE.as_bytes())?,
        ConfigCommand::Check { file } => {
            let config = Config::load(file)?;
            let pools = config.pools.iter();
            let volumes: usize = pools.clone().map(|pool| pool.volumes.len()).sum();
            let mounts: usize = pools.clone().map(|pool| pool.mounts.len()).sum();
            let file = file.display();
            writeln!(out, "{file}: {} pools, {volumes} volumes, {mounts} mounts", pools.len())?;
        }
    }
    Ok(Outcome::Clean)
}

impl Config {
    /// Reads a file. What is wrong in it is printed.
    pub(crate) fn load(file: &Path) -> Result<Config> {
        let name = file.display();
        let mut text = String::new();
        let read = File::open(file).and_then(|file| file.take(BYTES_MAX + 1).read_to_string(&mut text));
        read.with_context(|| format!("cannot read {name}"))?;
        if text.len() as u64 > BYTES_MAX {
            return Err(refuse(format!("{name} has more than {BYTES_MAX} bytes")));
        }
        plan::read(&text).map_err(|mistakes| {
            for Mistake { line, text } in &mistakes {
                note(format_args!("{name}:{line}: {text}"));
            }
            let count = mistakes.len();
            let word = if count == 1 { "mistake" } else { "mistakes" };
            refuse(format!("{name} has {count} {word}"))
        })
    }
}
