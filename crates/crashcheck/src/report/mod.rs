//! What a test has shown, for people and for programs.
//!
//! A [`Report`] is data: `run` and `analyze` write it as JSON, and everything else (text, JUnit, a page of
//! HTML) is made of it, then or later.

mod build;
mod data;
mod evidence;
mod html;
mod junit;
mod source;
mod text;

pub use build::build;
pub use data::{
    BlocksReport, EvidenceReport, FindingReport, HistoryReport, LineReport, OperationReport, PatternReport,
    RegionReport, Report, StateReport, StoreReport, Totals, VERSION,
};
pub use html::html;
pub use junit::junit;
pub use source::Source;
pub use text::{table, text};

#[cfg(test)]
mod tests;
