//! Describes what a crash would leave, and what the last one left. Only this module words it, from how the
//! pool was imported, which volumes ask for durability, what the log is on, and what the devices keep.

use crate::medium::Survival;

/// How the pool was before this import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// Exported: everything had synced.
    Exported,
    /// In use: its process, or the machine, had died.
    Crashed,
}

/// What part of the log the import gave up, because it was told to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// Nothing.
    Nothing,
    /// All of it.
    Log,
    /// The damaged part of the log and everything after it.
    Tail,
    /// All later txgs: the pool's devices are copies from earlier.
    Later,
}

/// What the log is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogPlace {
    /// The pool is read-only: its log was not read.
    Unused,
    /// Devices of the pool.
    Vdevs,
    /// Persistent memory, or a file whose stores are synced.
    Persistent,
    /// Memory, or a mapped file, that only stands in for persistent memory.
    StandsIn,
}

/// The facts that decide.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) before: Before,
    pub(crate) given_up: GivenUp,
    pub(crate) log: LogPlace,
    /// What the devices of the pool keep.
    pub(crate) vdevs: Survival,
    /// Number of volumes and file systems.
    pub(crate) volumes: usize,
    /// Volumes and file systems with `sync=disabled`.
    pub(crate) disabled: Vec<String>,
}

/// The words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Durability {
    /// What the import found.
    pub(crate) found: String,
    /// What of the flushed data a crash of the process would leave.
    pub(crate) after_process_crash: String,
    /// What of the flushed data a power cut would leave.
    pub(crate) after_power_cut: String,
    /// What of the unflushed data either would leave.
    pub(crate) not_flushed: String,
}

const EVERYTHING: &str = "every flushed write";
const TXGS: &str = "the last synced transaction group: flushed writes of the last seconds are lost";

impl Facts {
    pub(crate) fn words(&self) -> Durability {
        Durability {
            found: self.found(),
            after_process_crash: self.flushed(EVERYTHING.to_owned()),
            after_power_cut: self.after_power_cut(),
            not_flushed: self.not_flushed(),
        }
    }

    fn no_volume_is_durable(&self) -> bool {
        self.volumes > 0 && self.disabled.len() == self.volumes
    }

    /// `promise`, which holds for volumes whose flushes are not ignored.
    fn flushed(&self, promise: String) -> String {
        if self.no_volume_is_durable() {
            format!("{TXGS} (sync=disabled)")
        } else if self.disabled.is_empty() {
            promise
        } else {
            format!("{promise}; of volumes with sync=disabled ({}), {TXGS}", self.disabled.join(", "))
        }
    }

    fn after_power_cut(&self) -> String {
        let promise = match (self.vdevs, self.log) {
            (Survival::Nothing, _) => return "nothing: the pool is in memory".to_owned(),
            (_, LogPlace::StandsIn) => {
                return format!("{TXGS}: the log only stands in for persistent memory");
            }
            (Survival::IfFlushIsKept, _) => {
                format!("{EVERYTHING}, if file system and disk keep the promise of fsync")
            }
            (Survival::Everything, _) => EVERYTHING.to_owned(),
        };
        self.flushed(promise)
    }

    fn not_flushed(&self) -> String {
        if self.no_volume_is_durable() {
            "of the last seconds it is lost, in whole transaction groups".to_owned()
        } else {
            "any write of the last seconds may be missing; up to 64 KiB, each is there whole or not at all"
                .to_owned()
        }
    }

    fn found(&self) -> String {
        if self.log == LogPlace::Unused {
            return match self.before {
                Before::Exported => "imported read-only; it was exported cleanly".to_owned(),
                Before::Crashed => {
                    "imported read-only after a crash: its log is not replayed, so flushed writes of the last \
                     seconds before it are missing"
                        .to_owned()
                }
            };
        }
        match (self.before, self.given_up) {
            (_, GivenUp::Later) => {
                "imported as it was earlier: the devices are older copies, and flushed writes of later times are lost"
                    .to_owned()
            }
            (Before::Exported, GivenUp::Nothing) => "imported; it was exported cleanly".to_owned(),
            (Before::Exported, GivenUp::Log | GivenUp::Tail) => {
                "imported without its log or a part of it; it was exported cleanly, so all of that had synced".to_owned()
            }
            (Before::Crashed, GivenUp::Log) => {
                "imported after a crash, without its log: flushed writes of the last seconds before it are lost"
                    .to_owned()
            }
            (Before::Crashed, GivenUp::Tail) => {
                "imported after a crash, without what was damaged in its log and after that: flushed writes of the \
                 last seconds before it are lost"
                    .to_owned()
            }
            (Before::Crashed, GivenUp::Nothing) => {
                format!("imported after a crash: {}", self.found_after_crash())
            }
        }
    }

    fn found_after_crash(&self) -> String {
        if self.no_volume_is_durable() {
            return "as of the last synced transaction group (sync=disabled)".to_owned();
        }
        let found = match self.log {
            LogPlace::StandsIn => {
                "every flushed write is there, if the machine did not go down: the log only stands in for \
                 persistent memory"
            }
            _ => "every flushed write is there",
        };
        match self.disabled.is_empty() {
            true => found.to_owned(),
            false => format!("{found}; not of volumes with sync=disabled ({})", self.disabled.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests;
