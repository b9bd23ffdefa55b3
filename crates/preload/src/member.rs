//! This process as one of those that use the cache.

use fastness_pmem::PmRange;
use fastness_responder::Client;

/// Its part in the cache; after a fork there is another one.
pub(crate) struct Member {
    pub(crate) client: Client<PmRange>,
    /// Counts them.
    pub(crate) epoch: u32,
}
