//! The functions that a program calls. Each does what the C library's does, or calls it.

mod attributes;
mod descriptors;
mod handlers;
mod limits;
mod passed;
mod transfers;
