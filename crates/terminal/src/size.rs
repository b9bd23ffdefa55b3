//! Sizes on the command line and in the output: 64M is 64 MiB.

const UNITS: [(&str, u32); 4] = [("K", 10), ("M", 20), ("G", 30), ("T", 40)];

/// Reads a number of bytes, with or without a unit.
pub fn parse(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_uppercase();
    let bare = lower.strip_suffix("IB").or_else(|| lower.strip_suffix('B')).unwrap_or(&lower);
    let unit = UNITS.iter().find_map(|&(unit, shift)| Some((bare.strip_suffix(unit)?, shift)));
    let (digits, shift) = unit.unwrap_or((bare, 0));
    let number: u64 =
        digits.trim().parse().map_err(|_| format!("{text} is not a size: write 4096, 64K, 1M or 2G"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text} is too large"))
}

/// A number of bytes in the largest unit that divides it.
pub fn show(bytes: u64) -> String {
    let unit = UNITS.iter().rev().find(|&&(_, shift)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    unit.map_or_else(|| format!("{bytes} bytes"), |&(unit, shift)| format!("{} {unit}iB", bytes >> shift))
}

/// A number of bytes with about three digits.
pub fn short(bytes: u64) -> String {
    let unit = UNITS.iter().rev().find(|&&(_, shift)| bytes >= 1 << shift);
    let Some(&(unit, shift)) = unit else { return format!("{bytes}B") };
    let value = bytes as f64 / (1u64 << shift) as f64;
    if value < 10.0 { format!("{value:.2}{unit}") } else { format!("{value:.1}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("64M", 64 << 20), ("1k", 1024), ("2GiB", 2 << 30), ("7B", 7)]
        {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "-1", "1.5M", "99999999T", "12 parsecs"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(
            (show(64 << 20), show(1000), show(0)),
            ("64 MiB".into(), "1000 bytes".into(), "0 bytes".into())
        );
        assert_eq!([short(0), short(1023), short(1536), short(20 << 30)], ["0B", "1023B", "1.50K", "20.0G"]);
    }
}
