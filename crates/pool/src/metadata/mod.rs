//! The tables of a pool, and the file that the engine keeps them in.
//!
//! ```text
//! branches      which snapshots and clones there are
//! difference    what is between two snapshots
//! engine_error  errors of the engine, as errors of the pool
//! file          the file under the tables
//! file_branches which branches are file systems
//! going_back    what going back to a snapshot changes
//! groups        rows of extents
//! life          how long an object was there
//! past          rows of extents as snapshots see them
//! past_objects  objects as snapshots of file systems see them
//! past_rows     rows of ordered tables as snapshots see them
//! references    how many blocks name one place
//! snapshot      the tables as of one txg
//! tables        the tables and their rows
//! ```

pub(crate) mod branches;
mod difference;
mod engine_error;
pub(crate) mod file;
pub(crate) mod file_branches;
mod going_back;
pub(crate) mod groups;
pub(crate) mod life;
pub(crate) mod past;
pub(crate) mod past_objects;
pub(crate) mod past_rows;
pub(crate) mod references;
pub(crate) mod snapshot;
pub(crate) mod tables;
