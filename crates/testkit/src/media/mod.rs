//! Media that lose their power together: disks with volatile caches, and regions of persistent memory whose
//! stores are recorded.

mod bank;
mod disk;
mod power;

pub use bank::Bank;
pub use disk::{Disk, Failing};
pub use power::{Event, Power};
