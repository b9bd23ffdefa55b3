//! The tables of a pool, and the file that the engine keeps them in.
//!
//! ```text
//! engine_error  errors of the engine, as errors of the pool
//! file          the file under the tables
//! tables        the tables and their rows
//! ```

pub(crate) mod engine_error;
pub(crate) mod file;
pub(crate) mod tables;
