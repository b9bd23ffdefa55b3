//! Moments by the calendar.

/// A moment by the calendar, UTC.
///
/// Units: as people count; `month` and `day` from 1, `days` since 1970-01-01, which was a Thursday.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields say what they are")]
pub struct Moment {
    pub days: u64,
    pub year: u64,
    pub month: u64,
    pub day: u64,
    pub hour: u64,
    pub minute: u64,
    pub second: u64,
}

impl Moment {
    /// The moment so many seconds after the beginning of 1970.
    pub fn of(seconds: u64) -> Moment {
        let (days, of_day) = (seconds / 86400, seconds % 86400);
        // Years begin in March, so that the leap day is the last. 400 years have 146097 days.
        let shifted = days + 719_468;
        let (era, of_era) = (shifted / 146_097, shifted % 146_097);
        let of_years = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * of_years + of_years / 4 - of_years / 100);
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = of_years + era * 400 + u64::from(month <= 2);
        Moment { days, year, month, day, hour: of_day / 3600, minute: of_day / 60 % 60, second: of_day % 60 }
    }
}

/// As `2026-11-28 02:15:00`.
impl std::fmt::Display for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Moment { year, month, day, hour, minute, second, .. } = self;
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (951_868_799, "2000-02-29 23:59:59"),
            (951_868_800, "2000-03-01 00:00:00"),
            (1_709_210_096, "2024-02-29 12:34:56"),
            (1_735_689_599, "2024-12-31 23:59:59"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(Moment::of(seconds).to_string(), text);
        }
    }
}
