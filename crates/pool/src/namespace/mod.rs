//! Datasets: a tree of names with properties; and what belongs to the pool as a whole.
//!
//! ```text
//! change_settings  properties and features of a pool in use
//! dataset          the tree
//! hold             datasets that are in use are not destroyed
//! names            what names may be
//! props            values of properties, and how they are inherited
//! settings         properties of the pool, features: what is stored of them
//! ```

pub(crate) mod change_settings;
pub(crate) mod dataset;
pub(crate) mod hold;
pub(crate) mod names;
pub(crate) mod props;
pub(crate) mod settings;
