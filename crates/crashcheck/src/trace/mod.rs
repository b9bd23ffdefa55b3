//! Traces: from what was recorded in process, and as people read them.

mod record;
mod show;

pub use record::record;
pub use show::{Filter, ShowError, show};
pub(crate) use show::{hex, name, text};
