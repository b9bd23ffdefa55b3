//! The entry point of the plug-in.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};

use qemu_plugin_sys::{QEMU_PLUGIN_VERSION, qemu_info_t, qemu_plugin_id_t};

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::api::Plugin;
use crate::args::Arguments;
use crate::fail::say;

/// Version of the interface that this is written for: QEMU refuses to load it if it is an older one.
// SAFETY: QEMU looks for a variable of this name and type; nothing else has the name.
#[unsafe(no_mangle)]
pub(crate) static qemu_plugin_version: c_int = QEMU_PLUGIN_VERSION as c_int;

/// Called by QEMU, once, before the guest runs. 0: installed; else QEMU ends.
///
/// # Safety
/// `info` is valid, and `argv` has `argc` texts that end with a zero; QEMU guarantees both.
// SAFETY: QEMU looks for a function of this name and type; nothing else has the name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn qemu_plugin_install(
    id: qemu_plugin_id_t,
    info: *const qemu_info_t,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: by contract.
    let (target, is_guest, arguments) = unsafe {
        let info = &*info;
        let texts =
            (0..usize::try_from(argc).unwrap_or(0)).map(|index| CStr::from_ptr(*argv.add(index)).to_str());
        (CStr::from_ptr(info.target_name), info.system_emulation, texts.collect::<Result<Vec<_>, _>>())
    };
    match start(Plugin(id), target, is_guest, arguments) {
        Ok(()) => 0,
        Err(text) => {
            say(format_args!("{text}"));
            1
        }
    }
}

fn start(
    plugin: Plugin,
    target: &CStr,
    is_guest: bool,
    arguments: Result<Vec<&str>, std::str::Utf8Error>,
) -> Result<(), String> {
    if target != c"x86_64" {
        return Err(format!("traces x86_64, not {}", target.to_string_lossy()));
    }
    let arguments = arguments.map_err(|error| format!("an argument is not valid UTF-8: {error}"))?;
    let arguments = Arguments::parse(arguments).map_err(|error| error.to_string())?;
    if arguments.is_with_parent {
        set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(|error| format!("with_parent: {error}"))?;
    }
    match is_guest {
        true => crate::system::install(plugin, &arguments).map_err(|error| error.to_string()),
        false => crate::user::install(plugin, &arguments).map_err(|error| error.to_string()),
    }
}
