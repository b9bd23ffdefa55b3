//! In whose name files are made: they belong to the caller, in a directory whose group or default access
//! control list they take over as the file system does that.
//!
//! A thread of a server that is root takes the caller's user and group for that one system call. The kernel
//! has checked permissions already, with all groups of the caller; the thread keeps the capabilities that
//! stand for that.

use fastness_fuse::{Caller, Reply};
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_res_gid, set_thread_res_uid,
};

/// Does `act` as the caller; if this process is not root, as itself.
pub(crate) fn in_the_name_of<T>(caller: Caller<'_>, act: impl FnOnce() -> Reply<T>) -> Reply<T> {
    if (caller.uid, caller.gid) == (0, 0) || !geteuid().is_root() {
        return act();
    }
    let _taken = Taken::take(caller)?;
    act()
}

/// A thread with the user and group of a caller, until this is dropped.
struct Taken;

impl Taken {
    fn take(caller: Caller<'_>) -> Reply<Taken> {
        let before = capabilities(None)?;
        // From here on, dropping it goes back.
        let taken = Taken;
        set_thread_res_gid(None, Gid::from_raw(caller.gid), None)?;
        if caller.uid != 0 {
            set_thread_res_uid(None, Uid::from_raw(caller.uid), None)?;
            // Leaving root has emptied these; what is permitted stays.
            let checked = CapabilitySet::DAC_OVERRIDE | CapabilitySet::MKNOD;
            set_capabilities(None, CapabilitySets { effective: checked & before.permitted, ..before })?;
        }
        Ok(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let back = set_thread_res_uid(None, Uid::ROOT, None)
            .and_then(|()| set_thread_res_gid(None, Gid::ROOT, None));
        if back.is_err() {
            // The thread would do other callers' work in this one's name.
            std::process::abort();
        }
    }
}
