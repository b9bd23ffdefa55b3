//! A smaller input that still fails.

use super::change::digits;
use crate::minimal;

/// A smaller input of which `fails` says yes, as it does of `input`. It is asked up to `most` times; with
/// enough of these no line, no byte, can be left out, and no number become 0, 1 or half of what it is.
///
/// # Errors
/// Those of `fails`.
pub fn shrink<E>(
    input: &[u8],
    most: usize,
    fails: &mut dyn FnMut(&[u8]) -> Result<bool, E>,
) -> Result<Vec<u8>, E> {
    let mut asked = 0;
    let mut ask = |bytes: &[u8]| {
        if asked == most {
            return Ok(false);
        }
        asked += 1;
        fails(bytes)
    };
    if ask(&[])? {
        return Ok(Vec::new());
    }
    let mut input = input.to_vec();
    loop {
        let lines: Vec<Vec<u8>> = input.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        let lines = minimal(lines, most, &mut |lines| ask(&lines.concat()))?;
        let bytes = minimal(lines.concat(), most, &mut |bytes| ask(bytes))?;
        let simple = simple(bytes, &mut ask)?;
        if simple == input {
            return Ok(input);
        }
        input = simple;
    }
}

/// Numbers become smaller ones.
fn simple<E>(mut input: Vec<u8>, ask: &mut dyn FnMut(&[u8]) -> Result<bool, E>) -> Result<Vec<u8>, E> {
    let mut index = 0;
    while let Some(range) = digits(&input).get(index).cloned() {
        let text = std::str::from_utf8(&input[range.clone()]).unwrap_or_default();
        let value: Option<u64> = text.parse().ok();
        let smaller = value.into_iter().flat_map(|value| [0, 1, value / 2]).filter(|new| Some(*new) < value);
        let mut is_smaller = false;
        for number in smaller {
            let mut candidate = input.clone();
            candidate.splice(range.clone(), number.to_string().into_bytes());
            if ask(&candidate)? {
                (input, is_smaller) = (candidate, true);
                break;
            }
        }
        if !is_smaller {
            index += 1;
        }
    }
    Ok(input)
}
