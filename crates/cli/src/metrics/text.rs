//! Samples as text.
//!
//! Source: Prometheus, "Exposition formats", text format 0.0.4.

use std::collections::HashSet;
use std::fmt::Display;

/// `Content-Type` of the text.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Labels of a sample.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// The text; the samples of a metric follow its head, as the format demands.
#[derive(Debug, Default)]
pub(super) struct Text {
    text: String,
    /// Names and labels of samples. None may come twice: two devices can have the same path, one of them for
    /// the last time.
    samples: HashSet<String>,
}

impl Text {
    pub(super) fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.text += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    pub(super) fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        let labels: Vec<_> =
            labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escape(value))).collect();
        let sample = format!("{name}{{{}}}", labels.join(","));
        let line = format!("{sample} {value}\n");
        if self.samples.insert(sample) {
            self.text += &line;
        }
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    /// A metric with one sample for each of `all`.
    pub(super) fn each<T>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        all: &[T],
        of: impl Fn(&T) -> (&str, u64),
    ) {
        self.head(name, kind, help);
        for one in all {
            let (pool, value) = of(one);
            self.sample(name, &[("pool", pool)], value);
        }
    }
}

/// The value of a label: a path may have any character.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_may_have_any_character() {
        let mut text = Text::default();
        text.sample("a", &[("b", "c\"d\\e\nf")], 1);
        assert_eq!(text.finish(), "a{b=\"c\\\"d\\\\e\\nf\"} 1\n");
    }

    #[test]
    fn no_sample_comes_twice() {
        let mut text = Text::default();
        for (device, value) in [("x", 1), ("y", 2), ("x", 3)] {
            text.sample("a", &[("device", device)], value);
        }
        assert_eq!(text.finish(), "a{device=\"x\"} 1\na{device=\"y\"} 2\n");
    }
}
