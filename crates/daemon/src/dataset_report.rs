//! Reports of datasets and their properties.

use serde::{Deserialize, Serialize};

/// A dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetReport {
    /// Full name.
    pub name: String,
    /// `filesystem`, `volume`, `snapshot`, or `folder` for a parent of others.
    pub kind: String,
    /// Bytes on the vdevs, including the datasets below, and what is kept for snapshots; of a snapshot: what
    /// would be free without it alone.
    pub used_bytes: u64,
    /// Bytes that users could still store.
    #[serde(default)]
    pub available_bytes: Option<u64>,
    /// Bytes that it shows, whichever dataset they are counted for.
    #[serde(default)]
    pub referenced_bytes: u64,
    /// Size of a volume.
    pub size_bytes: Option<u64>,
    /// Of a volume of which not everything has been received: where the stream goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The snapshot that a clone began as.
    #[serde(default)]
    pub origin: Option<String>,
    /// Clones of a snapshot.
    #[serde(default)]
    pub clones: Vec<String>,
    /// When it was made, in seconds since the beginning of 1970; none if the pool does not say.
    #[serde(default)]
    pub created_unix_s: Option<u64>,
    /// What compression saves; only if that was asked for, since it is counted from all blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratios: Option<RatioReport>,
    /// Properties in force, those of users among them (their names have a colon).
    pub properties: Vec<PropertyReport>,
}

/// How much longer data would be without compression, in hundredths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RatioReport {
    /// Of what a dataset and those below it use.
    pub used_percent: u64,
    /// Of what it shows.
    pub referenced_percent: u64,
}

/// A property of a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PropertyReport {
    /// Name.
    pub name: String,
    /// Value as words.
    pub value: String,
    /// `local`, `default` or `inherited from NAME`; `-` for what cannot be set.
    pub source: String,
}
