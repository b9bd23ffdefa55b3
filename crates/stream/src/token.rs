//! Where an interrupted stream goes on, as text that people copy from one machine to another.
//!
//! Layout: `1-`, then hexadecimal: GUID of the snapshot 8, GUID of the one before 8 (0: none), offset 8, name
//! of the snapshot, XXH3-64 of all that 8. Numbers are little-endian.

use std::fmt;
use std::str::FromStr;

use twox_hash::XxHash3_64;

use crate::error::StreamError;
use crate::record::{NAME_BYTES_MAX, number};

const FIXED_BYTES: usize = 24;

/// Which stream, and what of it there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// GUID of the snapshot.
    pub to: u64,
    /// GUID of the snapshot that the receiver has.
    pub from: Option<u64>,
    /// What comes before this is there.
    pub offset: u64,
    /// Full name of the snapshot where it was sent from.
    pub name: String,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::with_capacity(FIXED_BYTES + self.name.len() + 8);
        bytes.extend(self.to.to_le_bytes());
        bytes.extend(self.from.unwrap_or(0).to_le_bytes());
        bytes.extend(self.offset.to_le_bytes());
        bytes.extend(self.name.as_bytes());
        bytes.extend(XxHash3_64::oneshot(&bytes).to_le_bytes());
        f.write_str("1-")?;
        bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Token {
    type Err = StreamError;

    fn from_str(text: &str) -> Result<Token, StreamError> {
        let parse = || {
            let digits = text.strip_prefix("1-")?;
            if !digits.is_ascii() || !digits.len().is_multiple_of(2) || digits.len() > 4 * NAME_BYTES_MAX {
                return None;
            }
            let byte = |at: usize| {
                let pair = digits.get(at..at + 2).filter(|pair| !pair.starts_with('+'))?;
                u8::from_str_radix(pair, 16).ok()
            };
            let bytes = (0..digits.len()).step_by(2).map(byte).collect::<Option<Vec<u8>>>()?;
            let (bytes, sum) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
            if number(sum) != XxHash3_64::oneshot(bytes) {
                return None;
            }
            let (fixed, name) = bytes.split_at_checked(FIXED_BYTES)?;
            let from = Some(number(&fixed[8..16])).filter(|from| *from != 0);
            let name = std::str::from_utf8(name).ok()?.to_owned();
            Some(Token { to: number(&fixed[..8]), from, offset: number(&fixed[16..24]), name })
        };
        parse().ok_or_else(|| StreamError::BadToken(text.to_owned()))
    }
}
