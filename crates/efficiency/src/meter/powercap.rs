//! RAPL counters through `/sys/class/powercap`: microjoules, which wrap around.
//!
//! Of each CPU package the zone `package-N`, and the zone `dram` in it, which has the persistent memory too.
//! `core` and `uncore` are parts of the package, `psys` is the whole platform where a vendor has set it up;
//! none of them is added.
//!
//! Source: `Documentation/power/powercap/powercap.rst`; dissertation (2025), 4.2.1.

use std::fs;
use std::path::PathBuf;

use crate::error::CostError;
use crate::machine::{Machine, number, read};

/// The zones that are added up.
#[derive(Debug)]
pub(crate) struct Powercap {
    zones: Vec<Zone>,
}

#[derive(Debug)]
struct Zone {
    name: String,
    energy: PathBuf,
    /// The counter goes on from 0 after this value.
    range_uj: u64,
    last_uj: u64,
    sum_uj: u64,
}

impl Zone {
    /// It wraps around after a minute at the earliest, and is read far more often.
    fn advance(&mut self, now_uj: u64) {
        let used = match now_uj.checked_sub(self.last_uj) {
            Some(used) => used,
            None => self.range_uj.saturating_sub(self.last_uj).saturating_add(now_uj),
        };
        self.last_uj = now_uj;
        self.sum_uj = self.sum_uj.saturating_add(used);
    }
}

impl Powercap {
    /// The zones; an error says why there are none.
    pub(crate) fn find(machine: &Machine) -> Result<Powercap, String> {
        let root = machine.sys.join("class/powercap");
        let Ok(listed) = fs::read_dir(&root) else { return Err(format!("no {}", root.display())) };
        let mut folders: Vec<PathBuf> = listed.flatten().map(|entry| entry.path()).collect();
        folders.sort();
        let mut zones = Vec::new();
        for folder in folders {
            // `intel-rapl-mmio:0` shows the same package once more.
            let is_rapl =
                folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"intel-rapl:"));
            let Ok(name) = read(&folder.join("name")) else { continue };
            let name = name.trim().to_owned();
            if !is_rapl || !(name.starts_with("package") || name == "dram") {
                continue;
            }
            let energy = folder.join("energy_uj");
            let first = number(&energy).map_err(|error| fastness_base::chain(&error))?;
            let range_uj =
                number(&folder.join("max_energy_range_uj")).map_err(|error| fastness_base::chain(&error))?;
            zones.push(Zone { name, energy, range_uj, last_uj: first, sum_uj: 0 });
        }
        if zones.iter().any(|zone| zone.name.starts_with("package")) {
            return Ok(Powercap { zones });
        }
        Err(format!("no RAPL package in {}", root.display()))
    }

    pub(crate) fn describe(&self) -> String {
        let names: Vec<_> = self.zones.iter().map(|zone| &*zone.name).collect();
        format!("RAPL ({})", names.join(", "))
    }

    pub(crate) fn joules(&mut self) -> Result<f64, CostError> {
        let mut sum_uj = 0_u64;
        for zone in &mut self.zones {
            zone.advance(number(&zone.energy)?);
            sum_uj = sum_uj.saturating_add(zone.sum_uj);
        }
        Ok(sum_uj as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::path::Path;

    fn put(root: &Path, zone: &str, name: &str, energy: &str) {
        let folder = root.join("class/powercap").join(zone);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("name"), name).unwrap();
        fs::write(folder.join("energy_uj"), energy).unwrap();
        fs::write(folder.join("max_energy_range_uj"), "1000000\n").unwrap();
    }

    #[test]
    fn packages_and_memory_are_added_up_and_counters_wrap() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        put(root, "intel-rapl:0", "package-0\n", "900000\n");
        put(root, "intel-rapl:0:0", "dram\n", "100\n");
        for (zone, name) in
            [("intel-rapl:0:1", "core"), ("intel-rapl:1", "psys"), ("intel-rapl-mmio:0", "package-0")]
        {
            put(root, zone, name, "0");
        }
        let mut zones = Powercap::find(&Machine::testing(root, root)).unwrap();
        assert_eq!(zones.describe(), "RAPL (package-0, dram)");
        assert_eq!(zones.joules().unwrap(), 0.0);
        put(root, "intel-rapl:0", "package-0", "400000");
        put(root, "intel-rapl:0:0", "dram", "250100");
        put(root, "intel-rapl:0:1", "core", "900000");
        assert_eq!(zones.joules().unwrap(), 0.75, "500000 around the end of the counter, and 250000");
        put(root, "intel-rapl:0", "package-0", "much");
        assert_eq!(zones.joules().unwrap_err().kind(), fastness_base::ErrorKind::Corrupt);
    }

    #[test]
    fn what_is_missing_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::testing(dir.path(), dir.path());
        let why = |machine| Powercap::find(machine).unwrap_err();
        assert!(why(&machine).ends_with("class/powercap"));
        put(dir.path(), "intel-rapl:0:0", "dram", "0");
        assert!(why(&machine).starts_with("no RAPL package"));
        put(dir.path(), "intel-rapl:0", "package-0", "0");
        fs::remove_file(dir.path().join("class/powercap/intel-rapl:0/energy_uj")).unwrap();
        assert!(why(&machine).contains("intel-rapl:0/energy_uj"));
    }
}
