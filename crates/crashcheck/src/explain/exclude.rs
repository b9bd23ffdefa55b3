//! What is left out of hints: ranges of PM, and places in the source.

use std::ops::Range;

use crate::generate::Layout;
use crate::size::size_of;
use crate::trace::short_name;

/// Something that no hint is about. Crash images are not affected.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub enum Exclusion {
    /// Bytes of a region of PM; of the first one without a name.
    Range {
        /// The last part of its path, as reports have it.
        region: Option<String>,
        /// Bytes from its beginning.
        bytes: Range<u64>,
    },
    /// A function, a source file, a line of one (`file.c:12`), a module of a kernel (`[nova]`), or a file of
    /// a program, as reports name them.
    Name(String),
}

impl TryFrom<String> for Exclusion {
    type Error = String;

    fn try_from(text: String) -> Result<Exclusion, String> {
        text.parse()
    }
}

impl std::str::FromStr for Exclusion {
    type Err = String;

    /// `0-4K`, `0x40+64`, `pool:0-4K`, or else a name.
    fn from_str(text: &str) -> Result<Exclusion, String> {
        let (region, range) = match text.rsplit_once(':') {
            Some((region, range)) => (Some(region), range),
            None => (None, text),
        };
        let numbers = range.split_once(['-', '+']).map(|(start, end)| (number(start), number(end)));
        let Some((Some(start), Some(end))) = numbers else {
            return match text.trim() {
                "" => Err("a range of PM (0-4K), a function or a file is expected".to_owned()),
                name => Ok(Exclusion::Name(name.to_owned())),
            };
        };
        let end = if range.contains('+') { start.checked_add(end) } else { Some(end) };
        match end.filter(|end| *end > start) {
            Some(end) => Ok(Exclusion::Range { region: region.map(str::to_owned), bytes: start..end }),
            None => Err(format!("the range {text} is empty: write START-END, or START+LENGTH")),
        }
    }
}

/// Hexadecimal, or a size.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => size_of(text).ok().filter(|_| text.starts_with(|first: char| first.is_ascii_digit())),
    }
}

impl Exclusion {
    /// The bytes of the image that it is about; none for a name, or without such a region.
    pub fn bytes(&self, layout: &Layout) -> Option<Range<u64>> {
        let Exclusion::Range { region, bytes } = self else { return None };
        let part = layout.parts().iter().find(|part| match region {
            Some(region) => short_name(&part.region) == region,
            None => true,
        })?;
        Some(part.offset.saturating_add(bytes.start)..part.offset.saturating_add(bytes.end))
    }

    /// Whether it is the name of one of these functions, files or lines.
    pub fn is_one_of(&self, names: &[&str]) -> bool {
        matches!(self, Exclusion::Name(name) if names.contains(&name.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use fastness_crashcheck_trace::{Header, Region};

    use super::*;

    fn parse(text: &str) -> Result<Exclusion, String> {
        text.parse()
    }

    #[test]
    fn ranges_are_of_a_region_and_everything_else_is_a_name() {
        let range =
            |region: Option<&str>, bytes| Exclusion::Range { region: region.map(str::to_owned), bytes };
        assert_eq!(parse("0-4K").unwrap(), range(None, 0..4096));
        assert_eq!(parse("0x40+64").unwrap(), range(None, 64..128));
        assert_eq!(parse("pool:1M-0x100040").unwrap(), range(Some("pool"), 1 << 20..0x10_0040));
        for name in
            ["persist", "journal.c", "journal.c:12", "[nova]", "a-b", "cceh::put", "libpmemobj.so.1", "5"]
        {
            assert_eq!(parse(name).unwrap(), Exclusion::Name(name.to_owned()));
        }
        for wrong in ["", " ", "64-64", "64-0", "0+0", "0xffffffffffffffff+1"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_range_is_of_the_image() {
        let region = |name: &str, start| Region { name: name.to_owned(), start, len_bytes: 4096 };
        let regions = vec![region("/some/where/a", 1 << 40), region("/some/where/b", 0)];
        let layout = Layout::of(&Header { regions, ..Header::default() }).unwrap();
        let bytes = |text: &str| parse(text).unwrap().bytes(&layout);
        assert_eq!(bytes("64-128"), Some(64..128));
        assert_eq!(bytes("b:64-128"), Some(4096 + 64..4096 + 128));
        assert_eq!((bytes("c:64-128"), bytes("main")), (None, None));
    }
}
