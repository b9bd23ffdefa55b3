//! Sizes in configurations and options.

/// Bytes, or with a unit.
pub(crate) fn size_of(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.trim().as_bytes() {
        [.., b'K' | b'k'] => (&text.trim()[..text.trim().len() - 1], 10),
        [.., b'M' | b'm'] => (&text.trim()[..text.trim().len() - 1], 20),
        [.., b'G' | b'g'] => (&text.trim()[..text.trim().len() - 1], 30),
        _ => (text.trim(), 0),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| format!("{text} is not a size: write 4096, 64K, 1M or 2G"))
}
