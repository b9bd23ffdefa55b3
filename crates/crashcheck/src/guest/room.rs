//! How many guests fit into the memory of a machine.

use super::GuestConfig;

/// Memory that QEMU needs besides the guest's RAM: translated code, tables, a trace that is being written.
const QEMU_BYTES: u64 = 256 << 20;

impl GuestConfig {
    /// How many guests can recover images at a time, up to `most`: as many as there is room for now, in
    /// memory and in the folder, beside one with a tracer. At least one: if there is no room for that either
    /// it will say so itself.
    pub fn at_a_time(&self, most: usize) -> usize {
        let memory = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| available_bytes(&text));
        let folder = rustix::fs::statvfs(&self.folder).ok();
        let folder = folder.map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
        fitting(
            most,
            [
                memory.map(|bytes| bytes / (self.ram_bytes + QEMU_BYTES)),
                folder.map(|bytes| bytes / self.ram_bytes),
            ],
        )
    }
}

/// Memory that is available to programs, according to the kernel.
fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Of guests for which there is room, each way of looking at it, all but one; `None` does not say.
fn fitting(most: usize, room: [Option<u64>; 2]) -> usize {
    let least = room.into_iter().flatten().min().map(|guests| guests.saturating_sub(1));
    let least = least.map_or(most, |guests| usize::try_from(guests).unwrap_or(usize::MAX));
    least.min(most).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_room_counts_and_one_guest_is_always_tried() {
        assert_eq!(fitting(64, [None, None]), 64);
        assert_eq!(fitting(64, [Some(9), Some(30)]), 8);
        assert_eq!(fitting(64, [Some(100), Some(30)]), 29);
        assert_eq!(fitting(2, [Some(100), Some(30)]), 2);
        assert_eq!(fitting(64, [Some(0), None]), 1);
        assert_eq!(fitting(64, [Some(1), None]), 1);
    }

    #[test]
    fn what_is_available_is_read_or_not_known() {
        let meminfo =
            "MemTotal:       24690940 kB\nMemFree:         9372000 kB\nMemAvailable:   22003456 kB\n";
        assert_eq!(available_bytes(meminfo), Some(22_003_456 * 1024));
        for text in [
            "",
            "MemTotal: 5 kB",
            "MemAvailable: many kB",
            "MemAvailable: 5 MB",
            "MemAvailable: 18446744073709551615 kB",
        ] {
            assert_eq!(available_bytes(text), None, "{text}");
        }
    }

    #[test]
    fn this_machine_has_some() {
        let config = GuestConfig { folder: std::env::temp_dir(), ..GuestConfig::new("/nowhere") };
        assert_eq!(config.at_a_time(1), 1);
        let nowhere = GuestConfig { folder: "/no/such/folder".into(), ram_bytes: 1 << 60, ..config };
        assert_eq!(nowhere.at_a_time(64), 1, "no machine has so much memory");
    }
}
