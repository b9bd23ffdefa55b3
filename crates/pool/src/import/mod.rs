//! Where pools come from: devices, or the pool that was suspended.
//!
//! ```text
//! carry  from a suspended pool to its next import
//! find   which configuration counts, and which devices are missing
//! open   create, import
//! ```

pub(crate) mod carry;
pub(crate) mod find;
pub(crate) mod open;
