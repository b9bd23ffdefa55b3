//! Gives back pages that the engine does not use; when: `space::unused`.

use std::sync::atomic::Ordering;

use crate::ids::UNIT_BYTES;
use crate::space::room::UNRESERVED;
use crate::state::Shared;

impl Shared {
    /// Whether a search may find pages. Asks the next txg for it if so.
    pub(crate) fn want_unused_pages(&self) -> bool {
        let may_find = self.unused.removed.load(Ordering::Relaxed) >= self.meta.pages();
        if may_find {
            self.unused.is_wanted.store(true, Ordering::Relaxed);
        }
        may_find
    }

    /// Gives pages back if a change waits for them. Called before the engine's transaction of a txg.
    ///
    /// The leaves of the page map that are written for that are not reserved by any change, so there is a
    /// limit: half of what unreserved use may be.
    pub(crate) fn give_back_unused_pages(&self) {
        let is_wanted = self.unused.is_wanted.swap(false, Ordering::Relaxed);
        if is_wanted && !self.unused.is_past_read() {
            let leaves_max = self.room.slop_bytes() / UNRESERVED / 2 / UNIT_BYTES;
            if !self.meta.give_back((leaves_max as usize).max(1)) {
                self.unused.removed.store(0, Ordering::Relaxed);
            }
        }
        self.meta.txg_begins();
    }
}
