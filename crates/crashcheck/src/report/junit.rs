//! Reports for continuous integration: JUnit's XML, a test case for each operation.

use std::fmt::Write as _;

use super::data::Report;
use super::text::text;

/// All reports as one document, a suite each.
pub fn junit(reports: &[Report]) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    // A string takes everything.
    let _ = reports.iter().try_for_each(|report| write_suite(report, &mut out));
    out.push_str("</testsuites>\n");
    out
}

fn write_suite(report: &Report, out: &mut String) -> std::fmt::Result {
    let failures = report.operations.iter().filter(|operation| !operation.findings.is_empty()).count();
    let (name, tests) = (escaped(&report.name), report.operations.len());
    writeln!(out, "  <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\">")?;
    for operation in &report.operations {
        write!(out, "    <testcase classname=\"{name}\" name=\"{}\"", escaped(&operation.name()))?;
        if operation.findings.is_empty() {
            writeln!(out, "/>")?;
            continue;
        }
        writeln!(out, ">")?;
        let what: Vec<_> = operation.findings.iter().map(|finding| finding.what.as_str()).collect();
        let alone = Report { operations: vec![operation.clone()], patterns: Vec::new(), ..report.clone() };
        let (what, text) = (escaped(&what.join("; ")), escaped(&text(&alone)));
        writeln!(out, "      <failure message=\"{what}\">{text}</failure>\n    </testcase>")?;
    }
    writeln!(out, "  </testsuite>")
}

/// Text as XML and HTML have it; characters that XML has no place for are replaced.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(char),
            char if char.is_control() || matches!(char, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            char => out.push(char),
        }
    }
    out
}
