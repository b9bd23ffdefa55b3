//! Datasets: a tree of names with properties; and what belongs to the pool as a whole.
//!
//! ```text
//! add              puts a dataset into the tree
//! change_settings  properties and features of a pool in use
//! dataset          the tree
//! file_snapshots   what is different about snapshots of file systems
//! hold             datasets that are in use are not destroyed
//! names            what names may be
//! promote          a clone and the volume that it began in change places
//! props            values of properties, and how they are inherited
//! rollback         a volume becomes what a snapshot is
//! settings         properties of the pool, features: what is stored of them
//! shown            what snapshots take, and what datasets show
//! snapshots        snapshots, and clones of volumes
//! ```

mod add;
pub(crate) mod change_settings;
pub(crate) mod dataset;
mod file_snapshots;
pub(crate) mod hold;
pub(crate) mod names;
mod promote;
pub(crate) mod props;
mod rollback;
pub(crate) mod settings;
pub(crate) mod shown;
pub(crate) mod snapshots;
