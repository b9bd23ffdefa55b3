//! Datasets: a tree of names with properties; and what belongs to the pool as a whole.
//!
//! ```text
//! add              puts a dataset into the tree
//! change_settings  properties and features of a pool in use
//! created          when a dataset was made
//! dataset          the tree
//! effective        values of properties with inherited ones, read without a lock
//! file_snapshots   what is different about snapshots of file systems
//! hold             datasets that are in use are not destroyed
//! identity         which snapshot is which in another pool, and what is between two
//! names            what names may be
//! promote          a clone and the volume that it began in change places
//! props            values of properties, and how they are inherited
//! ratio            how much compression saves
//! received         volumes that are being received, and become whole
//! rollback         a volume becomes what a snapshot is
//! set              sets properties of datasets
//! settings         properties of the pool, features: what is stored of them
//! shown            what snapshots take, and what datasets show
//! snapshots        snapshots, and clones of volumes
//! user             properties with names of their owners' choice; when datasets were made
//! ```

mod add;
pub(crate) mod change_settings;
pub(crate) mod created;
pub(crate) mod dataset;
pub(crate) mod effective;
mod file_snapshots;
pub(crate) mod hold;
pub(crate) mod identity;
pub(crate) mod names;
mod promote;
pub(crate) mod props;
pub(crate) mod ratio;
pub(crate) mod received;
mod rollback;
mod set;
pub(crate) mod settings;
pub(crate) mod shown;
pub(crate) mod snapshots;
pub(crate) mod user;
