//! What the options of `fastness cost` and `fastness bench --cost` mean.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fastness_efficiency::{ByteSource, Counted, External, IdleRule, Machine, Meter};
use fastness_terminal::size;

use crate::error::{Context, Result};

/// How to measure.
#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// How long the machine is watched before
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = watch)]
    idle_seconds: Duration,
    /// Share of the time of all CPUs that may be in use on an idle machine, in percent
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = percent)]
    idle_max: f64,
    /// What is cut off at the beginning and at the end
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    cut: Duration,
    /// A meter of energy outside of the machine: HOST:PORT, or the path of a FIFO or a serial port
    #[arg(long, value_name = "ADDRESS")]
    meter: Option<String>,
}

impl MeasureArgs {
    pub(crate) fn meter(&self) -> Result<Meter> {
        Ok(match &self.meter {
            Some(address) => Meter::of_external(External::connect(address)?),
            None => Meter::of_machine(&Machine::default()),
        })
    }

    pub(crate) fn idle_rule(&self) -> IdleRule {
        IdleRule { watch: self.idle_seconds, max_percent: self.idle_max }
    }

    /// Whether there is to be a meter of energy that was named.
    pub(crate) fn names_a_meter(&self) -> bool {
        self.meter.is_some()
    }

    pub(crate) fn cut(&self) -> Duration {
        self.cut
    }
}

/// As `--bytes` says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Bytes {
    Of(ByteSource),
    Report,
}

/// A source, and the file that the command has to know.
pub(super) struct Source {
    pub(super) source: ByteSource,
    pub(super) path: Option<PathBuf>,
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // It is in the folder for temporary files.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Bytes {
    /// The source for one run.
    pub(super) fn source(&self) -> Result<Source> {
        match self {
            Bytes::Of(source) => Ok(Source { source: source.clone(), path: None }),
            Bytes::Report => {
                let path = std::env::temp_dir().join(format!("fastness-bytes-{}", std::process::id()));
                // Not through a link that somebody else has put there.
                File::create_new(&path).with_context(|| format!("cannot create {}", path.display()))?;
                Ok(Source { source: ByteSource::Report(path.clone()), path: Some(path) })
            }
        }
    }
}

pub(super) fn bytes(text: &str) -> Result<Bytes, String> {
    let source = match text {
        "written" => ByteSource::Calls(Counted::Written),
        "read" => ByteSource::Calls(Counted::Read),
        "both" => ByteSource::Calls(Counted::Both),
        "meter" => ByteSource::Meter,
        "report" => return Ok(Bytes::Report),
        _ => match text.strip_prefix("device:") {
            Some(names) => ByteSource::Devices(names.split(',').map(device).collect()),
            None => ByteSource::Given(size::parse(text).map_err(|_| {
                format!("{text} is neither a size nor written, read, both, device:NAME, report or meter")
            })?),
        },
    };
    Ok(Bytes::Of(source))
}

fn device(name: &str) -> String {
    name.strip_prefix("/dev/").unwrap_or(name).to_owned()
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text} is not a number of seconds up to 3600");
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    if (0.0..=3600.0).contains(&seconds) { Ok(Duration::from_secs_f64(seconds)) } else { Err(wrong()) }
}

/// Counters of the kernel tick a hundred times a second.
fn watch(text: &str) -> Result<Duration, String> {
    let watched = seconds(text)?;
    if watched < Duration::from_millis(100) {
        Err(format!("{text} s is too short to see anything"))
    } else {
        Ok(watched)
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().unwrap_or(f64::NAN);
    if (0.0..=100.0).contains(&percent) {
        Ok(percent)
    } else {
        Err(format!("{text} is not 0 to 100 percent"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_of_bytes_are_read() {
        let devices = |names: &[&str]| ByteSource::Devices(names.iter().map(ToString::to_string).collect());
        let cases = [
            ("16G", ByteSource::Given(16 << 30)),
            ("written", ByteSource::Calls(Counted::Written)),
            ("both", ByteSource::Calls(Counted::Both)),
            ("device:sda", devices(&["sda"])),
            ("device:/dev/sda,nvme0n1", devices(&["sda", "nvme0n1"])),
            ("meter", ByteSource::Meter),
        ];
        for (text, source) in cases {
            assert_eq!(bytes(text), Ok(Bytes::Of(source)), "{text}");
        }
        assert_eq!(bytes("report"), Ok(Bytes::Report));
        for text in ["", "some", "disk:sda", "-5"] {
            assert!(bytes(text).unwrap_err().contains("neither a size nor"), "{text}");
        }
    }

    #[test]
    fn numbers_have_bounds() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!((percent("100"), watch("0.1")), (Ok(100.0), Ok(Duration::from_millis(100))));
        assert!(watch("0").is_err() && seconds("0").is_ok());
        for text in ["", "-1", "NaN", "inf", "1e9", "x"] {
            assert!(seconds(text).is_err() && percent(text).is_err(), "{text}");
        }
    }
}
