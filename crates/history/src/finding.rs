//! What is wrong with a sector, and all that was done to it.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use crate::operation::{End, Operation, Tick, What};
use crate::stamp::{Content, WriteId, Wrong};

/// Lines of a story that are told.
const STORY_LINES_MAX: usize = 200;

/// A change of an earlier time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Past {
    /// The restart that ended that time.
    pub(crate) restart: u32,
    pub(crate) name: &'static str,
    pub(crate) end: End,
}

/// Why something is wrong; numbers are indices of operations, `None` is what was there before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    /// A read had what is from no write.
    Read { read: u32, wrong: Wrong },
    /// A restart left what is from no write.
    Left(Wrong),
    /// No client has written since.
    Changed { base: Content, shown: u32 },
    /// A durable change is missing.
    Lost { seen: Option<u32>, durable: Option<u32> },
    /// What is there is from none of the changes since.
    Nothing,
    /// What a read had is from none of the changes that were there for it.
    ReadNothing { read: u32, content: Content },
    /// Reads contradict each other, or a reply.
    NoOrder { one: Option<u32>, other: Option<u32> },
}

/// All that is known of a sector.
pub(crate) struct Story<'a> {
    pub(crate) sector: u32,
    pub(crate) base: (Content, u32),
    pub(crate) operations: &'a [Operation],
    pub(crate) durable_before: Tick,
    pub(crate) past: &'a BTreeMap<WriteId, Past>,
}

/// Contents that cannot be: neither by what clients did, nor by a crash.
///
/// `Display` says which and why in the first line, and in further lines what was done to the first of the
/// sectors.
#[derive(Debug, Clone)]
pub struct Finding {
    /// Number of the volume.
    pub volume: u8,
    /// Restarts of the volume before this was found.
    pub restart: u32,
    /// Neighbours with the same fault.
    pub sectors: Range<u32>,
    /// What is there and why it cannot be.
    pub text: String,
    /// What was done to the first of the sectors since it was looked at last, in the order of the calls.
    pub story: Vec<String>,
    why: Why,
}

impl Finding {
    pub(crate) fn new(
        (volume, restart): (u8, u32),
        seen: Option<Content>,
        why: Why,
        story: &Story<'_>,
    ) -> Finding {
        let text = story.text(seen, &why);
        let sectors = story.sector..story.sector + 1;
        Finding { volume, restart, sectors, text, story: story.lines(), why }
    }

    /// Neighbours with the same fault are one finding.
    pub(crate) fn together(findings: impl IntoIterator<Item = Finding>) -> Vec<Finding> {
        let mut joined: Vec<Finding> = Vec::new();
        for finding in findings {
            match joined.last_mut() {
                Some(last) if last.sectors.end == finding.sectors.start && last.why == finding.why => {
                    last.sectors.end = finding.sectors.end;
                }
                _ => joined.push(finding),
            }
        }
        joined
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { volume, restart, sectors, text, .. } = self;
        write!(f, "volume {volume}, sectors {}..{}, restart {restart}: {text}", sectors.start, sectors.end)?;
        write!(f, "\n  sector {}:", sectors.start)?;
        for line in self.story.iter().take(STORY_LINES_MAX) {
            write!(f, "\n    {line}")?;
        }
        if self.story.len() > STORY_LINES_MAX {
            write!(f, "\n    and {} more", self.story.len() - STORY_LINES_MAX)?;
        }
        Ok(())
    }
}

impl Story<'_> {
    fn text(&self, seen: Option<Content>, why: &Why) -> String {
        let seen = seen.map_or_else(|| "contents that are wrong".to_owned(), |seen| self.content(seen));
        let named = |index: &Option<u32>| match index {
            Some(index) => self.name(*index),
            None => format!("what restart {} showed ({})", self.base.1, self.base.0),
        };
        match why {
            Why::Left(wrong) => format!("it has {wrong}"),
            Why::Read { read, wrong } => format!("{} had {wrong}", self.name(*read)),
            Why::Changed { base, shown } => {
                format!("it has {seen}; restart {shown} showed {base}, and no client has changed it since")
            }
            Why::Lost { durable, .. } => {
                format!("it has {seen}; {} is durable, and came after that", named(durable))
            }
            Why::Nothing => {
                format!("it has {seen}, which none of the changes since restart {} left", self.base.1)
            }
            Why::ReadNothing { read, content } => {
                format!("{} had {}, which cannot be there then", self.name(*read), self.content(*content))
            }
            Why::NoOrder { one, other } => format!(
                "reads and replies contradict each other: {} is before {} and after it",
                named(one),
                named(other)
            ),
        }
    }

    /// Contents, and where they are from if that is long ago.
    fn content(&self, content: Content) -> String {
        let past = match content {
            Content::Write(id) => self.past.get(&id),
            Content::Zeroes => None,
        };
        match past {
            Some(Past { restart, name, end }) => {
                let end = if end.is_acknowledged() { "acknowledged" } else { "never acknowledged" };
                format!("{content} (an old one: a {name}, {end}, before restart {restart})")
            }
            None => content.to_string(),
        }
    }

    fn name(&self, index: u32) -> String {
        let operation = &self.operations[index as usize];
        format!("{} {}", operation.name(), operation.id)
    }

    fn lines(&self) -> Vec<String> {
        let base = format!("restart {} showed {}", self.base.1, self.content(self.base.0));
        let is_about = |operation: &&Operation| {
            operation.what == What::Flush && operation.end.is_acknowledged()
                || operation.sectors.contains(&self.sector)
        };
        let mut about: Vec<_> = self.operations.iter().filter(is_about).collect();
        about.sort_by_key(|operation| operation.call);
        // Of the flushes between two others the last one decides.
        let mut told: Vec<&Operation> = Vec::new();
        for operation in about {
            if operation.what == What::Flush && told.last().is_some_and(|last| last.what == What::Flush) {
                told.pop();
            }
            told.push(operation);
        }
        std::iter::once(base).chain(told.into_iter().map(|operation| self.line(operation))).collect()
    }

    fn line(&self, operation: &Operation) -> String {
        let Operation { id, what, sectors, is_sync, call, end } = operation;
        let end_text = match end {
            End::Acknowledged(tick) => tick.to_string(),
            End::Over(tick) => format!("{tick} (not acknowledged)"),
            End::Open => "never".to_owned(),
        };
        let mut text = format!("{call} to {end_text}: {} {id}", operation.name());
        if !sectors.is_empty() {
            text.push_str(&format!(" of sectors {}..{}", sectors.start, sectors.end));
        }
        if let What::Read(contents) = what {
            match &contents[(self.sector - sectors.start) as usize] {
                Ok(content) => text.push_str(&format!(" had {content}")),
                Err(wrong) => text.push_str(&format!(" had {wrong}")),
            }
        } else if operation.content().is_some() && end.is_acknowledged() {
            let is_durable = *is_sync || end.tick() < self.durable_before;
            text.push_str(match (is_sync, is_durable) {
                (true, _) => ", durable (FUA)",
                (_, true) => ", durable",
                _ => "",
            });
        }
        text
    }
}
