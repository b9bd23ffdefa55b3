//! The callbacks from QEMU: the guest's CPUs begin, code is translated, instructions are executed.

use std::ffi::{c_uint, c_void};
use std::sync::atomic::Ordering;

use fastness_crashcheck_trace::FenceKind;

use super::{GUEST, Guest, IS_ON, origin};
use crate::api::{self, REGISTERS, Registers, Target};
use crate::fail::or_fail;
use crate::instr::Special;
use crate::translate::{Place, site, translate};

/// The guest, while events are recorded.
#[inline]
fn traced() -> Option<&'static Guest> {
    if IS_ON.load(Ordering::Relaxed) { GUEST.get() } else { None }
}

pub(super) extern "C" fn on_cpu(_: u64, _: c_uint) {
    let Some(guest) = GUEST.get() else { return };
    if REGISTERS.get().is_some() {
        return;
    }
    let _ = REGISTERS.set(or_fail(Registers::find(), "QEMU has no register of this name"));
    if guest.is_from_boot {
        guest.begin();
    }
}

pub(super) extern "C" fn on_block(_: u64, block: *mut qemu_plugin_sys::qemu_plugin_tb) {
    if let Some(guest) = GUEST.get() {
        translate(block, &guest.callbacks);
        if let Some(coverage) = &guest.coverage {
            coverage.translated(block);
        }
    }
}

pub(super) extern "C" fn on_store(cpu: c_uint, info: u32, address: u64, place: *mut c_void) {
    if let Some(guest) = traced() {
        guest.store(cpu, info, address, Place::unpack(place), false);
    }
    if let Some(guest) = GUEST.get()
        && guest.disks.are_traced()
        && let Target::Nvme(physical) = api::access_target(info, address)
    {
        guest.register(cpu, info, physical, Place::unpack(place).pc);
    }
}

pub(super) extern "C" fn on_locked(cpu: c_uint, info: u32, address: u64, place: *mut c_void) {
    let Some(guest) = traced() else { return };
    let place = Place::unpack(place);
    if !guest.store(cpu, info, address, place, true) {
        guest.fence(cpu, place.pc, FenceKind::Locked);
    }
}

pub(super) extern "C" fn on_load(cpu: c_uint, info: u32, address: u64, place: *mut c_void) {
    let Some(guest) = traced() else { return };
    let pieces = guest.pieces(info, address);
    if pieces == [None, None] {
        return;
    }
    let value = api::access_value(info);
    let pc = Place::unpack(place).pc;
    let stack = guest.frames.of_cpu(pc);
    let origin = origin(cpu, pc, stack.as_ref());
    let mut recorder = guest.lock();
    for (address, part) in pieces.into_iter().flatten() {
        or_fail(recorder.read(&origin, address, &value.as_slice()[part]), "load");
    }
}

pub(super) extern "C" fn on_special(cpu: c_uint, number: *mut c_void) {
    let (Some(guest), Some(site)) = (GUEST.get(), site(number)) else { return };
    if site.special == Special::Hypercall {
        guest.message(cpu, site.pc);
    } else if IS_ON.load(Ordering::Relaxed) {
        guest.special(cpu, &site);
    }
}

/// QEMU ends. May come twice.
pub(super) extern "C" fn on_exit(_: u64, _: *mut c_void) {
    if let Some(guest) = GUEST.get()
        && guest.lock().is_open()
    {
        guest.finish(true);
    }
}
