//! Which process a table is of, and whether that one still lives.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// A process, told from a later one with the same number by the time at which it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) pid: u32,
    /// In ticks since the machine started.
    pub(super) start_time: u64,
    /// Number of its PID namespace: in another one, its number means another process, or none.
    pub(super) namespace: u64,
}

impl Identity {
    pub(super) fn own() -> Identity {
        let pid = std::process::id();
        // Without /proc nobody can look for it either.
        let start_time = start_time_of(pid).unwrap_or_default();
        let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino());
        Identity { pid, start_time, namespace }
    }

    /// Whether it lives, as far as a process in this namespace can know.
    pub(super) fn lives(&self, namespace: u64) -> bool {
        self.namespace == namespace && start_time_of(self.pid) == Some(self.start_time)
    }

    /// Whether it is known to have ended.
    pub(super) fn has_ended(&self, namespace: u64) -> bool {
        self.namespace == namespace && start_time_of(self.pid) != Some(self.start_time)
    }
}

/// When a process (or a thread, by its number) started, in ticks since the machine did; none: there is no
/// such process.
pub fn start_time_of(pid: u32) -> Option<u64> {
    start_time(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Field 22 of proc(5), `stat`; the name in field 2 may contain anything.
fn start_time(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_found_after_any_name() {
        let rest = "S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        for name in ["x", "a b) c", ") 1 2 3 ("] {
            assert_eq!(start_time(&format!("7 ({name}) {rest}")), Some(4711), "{name}");
        }
        for text in ["", "7 (x", "7 (x) S 1 2"] {
            assert_eq!(start_time(text), None, "{text}");
        }
    }

    #[test]
    fn a_process_is_not_taken_for_another_one() {
        let me = Identity::own();
        assert!(me.lives(me.namespace) && !me.has_ended(me.namespace));
        let earlier = Identity { start_time: me.start_time - 1, ..me };
        assert!(!earlier.lives(me.namespace) && earlier.has_ended(me.namespace), "the number alone");
        assert!(!me.lives(me.namespace + 1) && !me.has_ended(me.namespace + 1), "of another namespace");
    }
}
