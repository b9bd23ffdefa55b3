//! What a txg writes out.

use std::sync::Arc;

use crate::objects::object::{Layer, ObjectCore};

/// An object of the txg with its layer.
pub(crate) struct Dirty {
    pub(crate) core: Arc<ObjectCore>,
    pub(crate) layer: Arc<Layer>,
    /// Bytes of its blocks.
    pub(crate) bytes: u64,
}
