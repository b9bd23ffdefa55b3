//! Where the code of a program comes from: messages with the action [`ACTION`], by which addresses of
//! instructions become lines of a source.

use crate::event::{Hypercall, TEXT_BYTES_MAX};

/// The action of these messages.
pub const ACTION: &str = "module";

/// A part of a file at addresses of the program. As text: address, length and offset in hex, and the path,
/// with blanks between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// First address.
    pub start: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Its first byte in the file.
    pub offset: u64,
    /// The file.
    pub path: String,
}

impl Module {
    /// Whether an address is in it.
    pub fn contains(&self, address: u64) -> bool {
        address.checked_sub(self.start).is_some_and(|offset| offset < self.len_bytes)
    }

    /// The value of a message; `None` for a path that is too long for one.
    pub fn value(&self) -> Option<String> {
        let value = format!("{:x} {:x} {:x} {}", self.start, self.len_bytes, self.offset, self.path);
        (value.len() <= TEXT_BYTES_MAX).then_some(value)
    }

    /// Of a message, if it is one of these.
    pub fn of(message: &Hypercall<'_>) -> Option<Module> {
        let Hypercall::Other { action: ACTION, value } = message else { return None };
        let mut words = value.splitn(4, ' ');
        let mut number = || u64::from_str_radix(words.next()?, 16).ok();
        let (start, len_bytes, offset) = (number()?, number()?, number()?);
        Some(Module { start, len_bytes, offset, path: words.next()?.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let module = Module { start: 0x1000, len_bytes: 0x2000, offset: 3, path: "/a b".to_owned() };
        let value = module.value().unwrap();
        assert_eq!(value, "1000 2000 3 /a b");
        let of = |action, value: &str| Module::of(&Hypercall::Other { action, value });
        assert_eq!(of(ACTION, &value), Some(module.clone()));
        assert_eq!(of("other", &value), None);
        for damaged in ["", "1000", "1000 2000 3", "x 2000 3 /a", "1000 2000 -3 /a"] {
            assert_eq!(of(ACTION, damaged), None, "{damaged}");
        }
        assert!(module.contains(0x1000) && module.contains(0x2fff));
        assert!(!module.contains(0xfff) && !module.contains(0x3000));
        assert_eq!(Module { path: "x".repeat(5000), ..module }.value(), None);
    }
}
