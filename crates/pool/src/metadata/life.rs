//! How long an object of a file system was there (`past_objects`).

use crate::ids::Txg;

/// Size and block bytes of an object.
pub(crate) type Shape = (u64, u32);

/// Which snapshots have an object: those after one txg, up to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Life {
    after: Txg,
    until: Txg,
}

impl Life {
    /// Of the data of a volume.
    pub(crate) const WHOLE: Life = Life { after: Txg(0), until: Txg(u64::MAX) };

    /// Of an object with these versions; `is_alive`: it has a current row.
    pub(crate) fn of(versions: &[(u64, Option<Shape>)], is_alive: bool) -> Life {
        let after = match versions.first() {
            Some((txg, None)) => Txg(*txg),
            _ => Txg(0),
        };
        let until = match versions.last() {
            _ if is_alive => Txg(u64::MAX),
            Some((txg, Some(_))) => Txg(*txg),
            _ => Txg(0),
        };
        Life { after, until }
    }

    /// Whether a snapshot of this txg has it.
    pub(crate) fn has(&self, txg: Txg) -> bool {
        self.after < txg && txg <= self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_the_span_between_creation_and_removal() {
        let (shape, none) = (Some((1, 512)), None);
        let has = |versions: &[(u64, Option<Shape>)], is_alive| {
            let life = Life::of(versions, is_alive);
            [4, 5, 6, 9, 10, 11].map(|txg| life.has(Txg(txg)))
        };
        assert_eq!(has(&[], true), [true; 6]);
        assert_eq!(has(&[], false), [false; 6]);
        assert_eq!(has(&[(5, none)], true), [false, false, true, true, true, true]);
        assert_eq!(has(&[(5, none), (10, shape)], false), [false, false, true, true, true, false]);
        assert_eq!(has(&[(5, shape), (10, shape)], false), [true, true, true, true, true, false]);
        assert_eq!(has(&[(5, shape)], true), [true; 6]);
        // Created and destroyed since.
        assert_eq!(has(&[(5, none)], false), [false; 6]);
    }
}
