//! Less that still fails.
//!
//! Source: A. Zeller, R. Hildebrandt, Simplifying and isolating failure-inducing input, 2002 (ddmin).

/// A part of `items` of which `is_enough` says yes, as it does of all of them; it is asked up to `most`
/// times. With enough of these no single item of the part can be left out.
///
/// # Errors
/// Those of `is_enough`.
pub fn minimal<T: Clone, E>(
    mut items: Vec<T>,
    most: usize,
    is_enough: &mut dyn FnMut(&[T]) -> Result<bool, E>,
) -> Result<Vec<T>, E> {
    let (mut parts, mut asked) = (2, 0);
    while items.len() > 1 {
        let size = items.len().div_ceil(parts);
        let ranges: Vec<_> =
            (0..items.len()).step_by(size).map(|start| start..(start + size).min(items.len())).collect();
        // Each part alone; then, where that is something else, all but a part.
        let alone = ranges.iter().map(|range| items[range.clone()].to_vec());
        let without = |range: &std::ops::Range<usize>| [&items[..range.start], &items[range.end..]].concat();
        let others = ranges.iter().filter(|_| ranges.len() > 2).map(without);
        let mut smaller = None;
        for candidate in alone.chain(others) {
            if asked == most {
                return Ok(items);
            }
            asked += 1;
            if is_enough(&candidate)? {
                smaller = Some(candidate);
                break;
            }
        }
        match smaller {
            // Most of it is still there: parts of the same size are tried again.
            Some(smaller) => {
                parts = if smaller.len() > size { (parts - 1).max(2) } else { 2 };
                items = smaller;
            }
            None if size == 1 => break,
            None => parts = (parts * 2).min(items.len()),
        }
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enough(items: usize, culprits: &[usize], most: usize) -> (Vec<usize>, usize) {
        let mut asked = 0;
        let found = minimal((0..items).collect(), most, &mut |part| {
            asked += 1;
            Ok::<_, ()>(culprits.iter().all(|culprit| part.contains(culprit)))
        });
        (found.unwrap(), asked)
    }

    #[test]
    fn culprits_are_found() {
        for culprit in 0..100 {
            let (found, asked) = enough(100, &[culprit], 100);
            assert_eq!(found, [culprit]);
            assert!(asked <= 14, "{asked}: halves of halves");
        }
        for (one, two) in [(0, 99), (49, 50), (3, 4), (20, 70)] {
            assert_eq!(enough(100, &[one, two], 1000).0, [one, two]);
        }
        assert_eq!(enough(5, &[0, 1, 2, 3, 4], 1000).0, [0, 1, 2, 3, 4]);
        assert_eq!(enough(1, &[0], 10), (vec![0], 0));
    }

    #[test]
    fn it_is_asked_as_often_as_allowed() {
        assert_eq!(enough(64, &[5], 0), ((0..64).collect(), 0));
        assert_eq!(enough(64, &[5], 2), ((0..16).collect(), 2));
        assert_eq!(enough(64, &[0, 63], 10).1, 10);
    }
}
