//! NBD exports through libnbd.

mod api;
mod connection;
mod device;
#[cfg(test)]
mod tests;

pub(crate) use api::functions;
pub use device::NbdDevice;
