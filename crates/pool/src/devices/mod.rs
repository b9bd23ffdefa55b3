//! What a pool is made of: devices, their labels, and the vdevs that they form.
//!
//! ```text
//! config  the contents of labels
//! label   both ends of a device
//! probe   labels of a device whose pool is not imported
//! run     requests being filled and in flight
//! vdev    mirror, healing, stripe
//! ```

pub(crate) mod config;
pub(crate) mod label;
pub(crate) mod probe;
pub(crate) mod run;
pub(crate) mod vdev;
