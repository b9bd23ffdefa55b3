//! The tables of a pool, and the file that the engine keeps them in.
//!
//! ```text
//! engine_error  errors of the engine, as errors of the pool
//! file          the file under the tables
//! groups        rows of extents
//! references    how many blocks name one place
//! snapshot      the tables as of one txg
//! tables        the tables and their rows
//! ```

pub(crate) mod engine_error;
pub(crate) mod file;
pub(crate) mod groups;
pub(crate) mod references;
pub(crate) mod snapshot;
pub(crate) mod tables;
