//! Rows of results, as JSON for scripts and as a table for people.

use std::fmt::Write;

use serde::Serialize;

use crate::measure::Spread;
use crate::medium::medium_name;

/// One row; fields that do not apply are left out of the JSON.
#[derive(Debug, Clone, Serialize, Default)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// The figure, in `unit`; a median. None if it could not be measured here: the name says why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Unit of `value`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub unit: &'static str,
    /// `value` against the baseline, by turns in one run; a median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Quartiles of the ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_interval: Option<[f64; 2]>,
    /// What it is compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// The goal, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// Whether the goal is met.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
    /// The medium, or its stand-in.
    pub medium: String,
    /// Threads.
    pub threads: usize,
    /// Median latency in ns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<f64>,
    /// 99th percentile of latency in ns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<f64>,
    /// The parts of `value`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<(&'static str, f64)>,
}

impl Row {
    /// With this goal for its ratio in place of the one that it had.
    pub(crate) fn at_most(self, bound: f64) -> Self {
        let met = self.ratio.map(|ratio| ratio <= bound);
        Self { goal: Some(format!("at most {bound}x")), met, ..self }
    }

    /// The part of a row that a ratio decides; a goal is a bound and the word for it.
    pub(crate) fn ratio(ratio: Spread, goal: Option<(f64, &str)>) -> Self {
        let met = |(bound, word): (f64, &str)| {
            if word == "at most" { ratio.median <= bound } else { ratio.median >= bound }
        };
        Self {
            ratio: Some(ratio.median),
            ratio_interval: Some([ratio.low, ratio.high]),
            goal: goal.map(|(bound, word)| format!("{word} {bound}x")),
            met: goal.map(met),
            medium: medium_name(),
            threads: 1,
            ..Self::default()
        }
    }
}

/// The rows as one JSON array.
pub fn render_json(rows: &[Row]) -> String {
    serde_json::to_string_pretty(rows).expect("rows are plain data")
}

/// The rows as a Markdown table, which also reads well in a terminal.
pub fn render_table(title: &str, rows: &[Row]) -> String {
    let mut out = format!(
        "{title}\n\n| what | value | ratio (quartiles) | against | goal | met |\n|---|--:|--:|---|---|---|\n"
    );
    for row in rows {
        let ratio = match (row.ratio, row.ratio_interval) {
            (Some(ratio), Some([low, high])) => format!("{ratio:.2} ({low:.2}-{high:.2})"),
            (Some(ratio), None) => format!("{ratio:.2}"),
            _ => String::new(),
        };
        let met = row.met.map_or("", |met| if met { "yes" } else { "NO" });
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let value = match row.value {
            Some(value) if value >= 100.0 => format!("{value:.0}"),
            Some(value) => format!("{value:.1}"),
            None => String::new(),
        };
        let _ = writeln!(
            out,
            "| {} | {value} {} | {ratio} | {} | {} | {met} |",
            row.name,
            row.unit,
            text(&row.baseline),
            text(&row.goal)
        );
    }
    out
}
