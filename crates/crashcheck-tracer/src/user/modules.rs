//! Where the program's code comes from: what turns addresses of instructions into lines of its source.
//!
//! At the end of the trace there is a message for each part of a file that is mapped
//! (`fastness_crashcheck_trace::module`). The kernel knows them by addresses of this process, which are the
//! program's where QEMU has put its memory in place; elsewhere there are no such messages.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use fastness_crashcheck_trace::module::Module;

use crate::api;

/// An address of the program's code, which is in one of its files.
static CODE: AtomicU64 = AtomicU64::new(0);

/// Most parts.
const MODULES_MAX: usize = 1000;

/// Files that are mapped, but for those of QEMU itself.
pub(super) fn modules() -> Vec<Module> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let qemu = std::env::current_exe().unwrap_or_default();
    let is_program = |module: &Module| Path::new(&module.path) != qemu;
    let found: Vec<Module> = maps.lines().filter_map(parse).filter(is_program).take(MODULES_MAX).collect();
    let code = CODE.load(Ordering::Relaxed);
    let is_in_place = found.iter().any(|module| module.contains(code));
    if is_in_place { found } else { Vec::new() }
}

/// Remembers where the first block of the program is.
pub(super) fn note_code(block: *mut qemu_plugin_sys::qemu_plugin_tb) {
    if CODE.load(Ordering::Relaxed) == 0
        && let Some(first) = api::instructions(block).next()
    {
        CODE.store(first.address(), Ordering::Relaxed);
    }
}

/// A line of `/proc/PID/maps`, if it is about a file.
fn parse(line: &str) -> Option<Module> {
    let mut words = line.splitn(6, char::is_whitespace);
    let (start, end) = words.next()?.split_once('-')?;
    let (_rights, offset, _device, inode) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let path = words.next()?.trim_start();
    let number = |text| u64::from_str_radix(text, 16).ok();
    let (start, end, offset) = (number(start)?, number(end)?, number(offset)?);
    let is_file = inode != "0" && path.starts_with('/') && !path.ends_with(" (deleted)");
    is_file.then(|| Module { start, len_bytes: end.saturating_sub(start), offset, path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_files_are_read() {
        let line = "555555556000-555555558000 r--p 00001000 fe:00 26 /a dir/program";
        let path = "/a dir/program".to_owned();
        let module = Module { start: 0x5555_5555_6000, len_bytes: 0x2000, offset: 0x1000, path };
        assert_eq!(parse(line), Some(module));
        assert_eq!(parse("7ff7d000-7ff7f000 rw-p 00000000 00:00 0                          [stack]"), None);
        assert_eq!(parse("7ff7d000-7ff7f000 rw-p 00000000 00:00 0 "), None);
        assert_eq!(parse("7ff7d000-7ff7f000 rw-s 00000000 00:01 5 /dev/shm/x (deleted)"), None);
        assert_eq!(parse(""), None);
    }
}
