//! What a test has shown, for people and for programs.
//!
//! A [`Report`] is data: `run` and `analyze` write it as JSON, and everything else (text, JUnit, a page of
//! HTML) is made of it, then or later.

mod build;
mod cause;
mod cause_text;
mod chain;
mod data;
mod evidence;
mod hints;
mod html;
mod junit;
mod left_out;
mod lost;
mod place;
mod recovery_data;
mod source;
mod text;

pub use build::build;
pub use cause::cause_reports;
pub use cause_text::{Show, causes_text};
pub use data::{
    BlocksReport, CauseReport, CutPointReport, EvidenceReport, FindingReport, HistoryReport, LeftOutReport,
    LineReport, Measured, OperationReport, PatternReport, RegionReport, Report, StateReport, StepReport,
    StoreReport, Totals, VERSION, WitnessReport,
};
pub use html::html;
pub use junit::junit;
pub(crate) use place::is_library;
pub use recovery_data::{RecoveryCrashReport, RecoveryTotals};
pub use source::Source;
pub use text::{table, text, text_with};

#[cfg(test)]
mod tests;
