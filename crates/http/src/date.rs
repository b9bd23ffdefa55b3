//! Dates as HTTP writes them.

use std::time::SystemTime;

use fastness_base::Moment;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Seconds since 1970 as RFC 9110, 5.6.7, wants them.
pub(crate) fn http_date(seconds: u64) -> String {
    let Moment { days, year, month, day, hour, minute, second } = Moment::of(seconds);
    let (of_week, month) = (DAYS[days as usize % 7], MONTHS[month as usize - 1]);
    format!("{of_week}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 9110, 5.6.7.
    #[test]
    fn a_date_of_http_has_the_day_of_the_week() {
        assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
    }
}
