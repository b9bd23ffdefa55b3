//! RBD images through librbd.

mod api;
mod cluster;
mod device;
#[cfg(test)]
mod fake;
mod image;
mod note;
#[cfg(test)]
mod tests;

pub(crate) use api::functions;
pub(crate) use cluster::images;
pub use device::RbdDevice;
