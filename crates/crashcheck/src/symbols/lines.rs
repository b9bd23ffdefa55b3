//! How a place in a source is written.

use addr2line::Location;

/// A function, and a line of its source: `commit (journal.c:12)`.
pub(super) fn text(name: Option<String>, location: Option<&Location<'_>>) -> Option<String> {
    let place = location.and_then(|location| {
        let file = location.file?.rsplit('/').next().unwrap_or_default();
        Some(format!("{file}:{}", location.line?))
    });
    match (name, place) {
        (Some(name), Some(place)) => Some(format!("{name} ({place})")),
        (Some(name), None) => Some(name),
        (None, Some(place)) => Some(format!("({place})")),
        (None, None) => None,
    }
}

/// Most functions of one instruction, inlined into each other.
const FRAMES_MAX: usize = 4;

/// The functions of an instruction, inlined into each other, innermost first: of many the innermost, and the
/// one that was not inlined.
pub(super) fn joined(mut frames: Vec<String>) -> Option<String> {
    if frames.len() > FRAMES_MAX {
        frames.drain(FRAMES_MAX - 1..frames.len() - 1);
    }
    (!frames.is_empty()).then(|| frames.join(" in "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_functions_the_last_is_kept() {
        let of = |count: usize| joined((1..=count).map(|number| number.to_string()).collect());
        assert_eq!(of(0), None);
        assert_eq!(of(4).unwrap(), "1 in 2 in 3 in 4");
        assert_eq!(of(7).unwrap(), "1 in 2 in 3 in 7");
    }
}
