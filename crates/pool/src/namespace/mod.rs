//! Datasets: a tree of names with properties; and what belongs to the pool as a whole.
//!
//! ```text
//! dataset   the tree
//! props     values of properties, and how they are inherited
//! settings  properties of the pool, features
//! ```

pub(crate) mod dataset;
pub(crate) mod props;
pub(crate) mod settings;
