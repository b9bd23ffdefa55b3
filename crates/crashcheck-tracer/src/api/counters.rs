//! Counters that translated code adds to by itself, without a call.

use qemu_plugin_sys as sys;

const COUNTER_BYTES: usize = size_of::<u64>();

/// Counters by number; each virtual CPU has its own ones.
#[derive(Debug)]
pub(crate) struct Counters {
    /// QEMU's handle, as a number: it is never followed here.
    board: usize,
    len: usize,
}

impl Counters {
    /// `len` counters that are zero. They stay as long as QEMU runs.
    pub(crate) fn new(len: usize) -> Counters {
        // SAFETY: QEMU makes room for a CPU's counters, and aborts if there is none.
        let board = unsafe { sys::qemu_plugin_scoreboard_new(len * COUNTER_BYTES) };
        Counters { board: board.expose_provenance(), len }
    }

    /// `None` beyond the last one.
    fn entry(&self, number: usize) -> Option<sys::qemu_plugin_u64> {
        let score = std::ptr::with_exposed_provenance_mut(self.board);
        (number < self.len).then_some(sys::qemu_plugin_u64 { score, offset: number * COUNTER_BYTES })
    }

    /// From now on each run of a block that is being translated is counted.
    pub(crate) fn count(&self, block: *mut sys::qemu_plugin_tb, number: usize) {
        let Some(entry) = self.entry(number) else { return };
        // SAFETY: in the callback for the translation, to which QEMU has handed the block; the counter is one
        // of the board, which stays.
        unsafe {
            sys::qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
                block,
                sys::qemu_plugin_op::QEMU_PLUGIN_INLINE_ADD_U64,
                entry,
                1,
            );
        }
    }

    /// What all CPUs have counted; in a callback.
    pub(crate) fn sum(&self, number: usize) -> u64 {
        // SAFETY: the counter is one of the board, which stays.
        self.entry(number).map_or(0, |entry| unsafe { sys::qemu_plugin_u64_sum(entry) })
    }
}

/// Address of the first instruction of a block, in the callback for its translation.
pub(crate) fn block_address(block: *mut sys::qemu_plugin_tb) -> u64 {
    // SAFETY: QEMU hands the block to the callback, and it is valid there.
    unsafe { sys::qemu_plugin_tb_vaddr(block) }
}
