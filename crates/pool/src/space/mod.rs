//! Free space: where the next block goes, and whether there is room for it.
//!
//! ```text
//! alloc      which units are free
//! elsewhere  a step of a sync once more, if a device is full
//! reserve    reserving room in the pool and in quotas
//! room       what changes reserve, and why every txg finds room
//! squeeze    for tests: little room
//! thick      volumes with room of their own
//! ```

pub(crate) mod alloc;
pub(crate) mod elsewhere;
pub(crate) mod reserve;
pub(crate) mod room;
pub(crate) mod squeeze;
pub(crate) mod thick;
