//! What is said of what was destroyed.

use serde::{Deserialize, Serialize};

/// What was destroyed, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestroyedReport {
    /// Full names.
    pub names: Vec<String>,
    /// Bytes that are then free, sooner or later.
    pub reclaimed_bytes: u64,
}
