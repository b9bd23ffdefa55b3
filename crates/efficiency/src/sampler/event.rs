//! The event that samples stores on this machine, or what is missing for one.

use crate::machine::{Machine, number, read};
use crate::perf_event::{Attributes, EXCLUDE_HYPERVISOR, EXCLUDE_KERNEL, PRECISE_SHIFT, WATERMARK};

use super::error::SampleError;
use super::record::SAMPLE_TYPE;

/// Events between two samples, if nothing else is said: one of the source's.
pub const PERIOD: u64 = 9973;
/// Of less, a CPU would do little else.
const PERIOD_MIN: u64 = 100;
const PERIOD_MAX: u64 = 1 << 30;

/// MEM_INST_RETIRED.ALL_STORES, from Skylake on. Source: Intel SDM volume 3B, chapter 20.
const ALL_STORES: u64 = 0x82d0;
/// IBS counts micro-operations instead of cycles. Source: AMD, processor programming references,
/// `IBS_OP_CTL`.
const COUNT_OPS: u64 = 1 << 19;
/// IBS periods are multiples of this.
const IBS_STEP: u64 = 16;

/// An event for stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreEvent {
    /// As perf calls it.
    pub name: String,
    /// What kind of sampling it is: "PEBS", "IBS".
    pub by: &'static str,
    kind: u32,
    config: u64,
    precise: u64,
    /// Periods are multiples of it.
    step: u64,
    /// Programs only, if the event can be limited so; the records say it anyway.
    user_only: bool,
    /// Of a breakpoint, its type, address and length: for tests on machines without another precise event.
    breakpoint: Option<(u32, u64, u64)>,
}

impl StoreEvent {
    /// The events of this machine: one for each kind of core.
    ///
    /// # Errors
    /// [`SampleError::NoEvent`].
    pub fn find(machine: &Machine) -> Result<Vec<StoreEvent>, SampleError> {
        let devices = machine.sys.join("bus/event_source/devices");
        let vendor = vendor(machine);
        let kind = |device: &str| number(&devices.join(device).join("type")).ok()?.try_into().ok();
        if let Some(kind) = kind("ibs_op") {
            let event = StoreEvent { step: IBS_STEP, ..StoreEvent::new("ibs_op//", "IBS", kind, COUNT_OPS) };
            return Ok(vec![event]);
        }
        let mut events = Vec::new();
        for device in ["cpu", "cpu_core", "cpu_atom"] {
            let Some(kind) = kind(device) else { continue };
            let named = read(&devices.join(device).join("events/mem-stores")).ok();
            let config = named.as_deref().and_then(config_of);
            let known = (vendor == "GenuineIntel").then_some(ALL_STORES);
            let Some(config) = config.or(known) else { continue };
            let name = format!("{device}/mem-stores/");
            events.push(StoreEvent { precise: 2, ..StoreEvent::new(&name, "PEBS", kind, config) });
        }
        if events.is_empty() {
            return Err(SampleError::NoEvent { missing: missing(machine, &vendor) });
        }
        Ok(events)
    }

    fn new(name: &str, by: &'static str, kind: u32, config: u64) -> StoreEvent {
        StoreEvent {
            name: name.to_owned(),
            by,
            kind,
            config,
            precise: 0,
            step: 1,
            user_only: true,
            breakpoint: None,
        }
    }

    /// Stores to 8 bytes at an address, which every kernel can record: not a way to sample a program, but
    /// records of the kernel's own, with known counts.
    #[cfg(test)]
    pub(super) fn breakpoint(address: u64) -> StoreEvent {
        const BREAKPOINT: u32 = 5;
        const ON_WRITE: u32 = 2;
        let event = StoreEvent::new("breakpoint", "breakpoint", BREAKPOINT, 0);
        StoreEvent { breakpoint: Some((ON_WRITE, address, 8)), ..event }
    }

    /// What the kernel is asked for.
    pub(super) fn attributes(&self, period: u64, wake_bytes: u32) -> Attributes {
        let user = if self.user_only { EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR } else { 0 };
        let (breakpoint_type, config1, config2) = self.breakpoint.unwrap_or_default();
        Attributes {
            sample_period: round_period(period, self.step),
            sample_type: SAMPLE_TYPE,
            flags: WATERMARK | user | self.precise << PRECISE_SHIFT,
            wakeup: wake_bytes,
            breakpoint_type,
            config1,
            config2,
            ..Attributes::new(self.kind, self.config)
        }
    }

    /// The same, of the kernel too.
    pub(super) fn with_kernel(&self) -> StoreEvent {
        StoreEvent { user_only: false, ..self.clone() }
    }

    /// Whether it promises precise samples.
    pub(super) fn is_precise(&self) -> bool {
        self.precise > 0
    }
}

/// The least multiple of `step` that is no less than the period.
pub fn round_period(period: u64, step: u64) -> u64 {
    period.div_ceil(step).saturating_mul(step)
}

/// Refuses periods that make no sense.
pub(super) fn check_period(period: u64) -> Result<(), SampleError> {
    if (PERIOD_MIN..=PERIOD_MAX).contains(&period) {
        return Ok(());
    }
    Err(SampleError::Options(format!("a period is {PERIOD_MIN} to {PERIOD_MAX} events, not {period}")))
}

/// "event=0xd0,umask=0x82": the number of an event whose fields lie where those of all such devices do.
fn config_of(text: &str) -> Option<u64> {
    let mut config = 0;
    for term in text.trim().split(',') {
        let (name, value) = term.split_once('=')?;
        let value = u64::from_str_radix(value.strip_prefix("0x")?, 16).ok()?;
        let shift = match name {
            "event" if value <= 0xff => 0,
            "umask" if value <= 0xff => 8,
            // The latency from which on loads count.
            "ldlat" => continue,
            _ => return None,
        };
        config |= value << shift;
    }
    (config != 0).then_some(config)
}

fn vendor(machine: &Machine) -> String {
    let text = read(&machine.proc.join("cpuinfo")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("vendor_id"));
    line.map_or("unknown", |line| line.trim_start().trim_start_matches(':').trim()).to_owned()
}

fn missing(machine: &Machine, vendor: &str) -> String {
    let devices = machine.sys.join("bus/event_source/devices");
    let is_guest = read(&machine.proc.join("cpuinfo")).is_ok_and(|text| {
        text.lines().any(|line| line.starts_with("flags") && line.split(' ').any(|flag| flag == "hypervisor"))
    });
    let guest =
        if is_guest { "; this is a virtual machine, whose hypervisor does not pass it on" } else { "" };
    match vendor {
        "AuthenticAMD" => format!(
            "no {}: an AMD CPU samples stores by IBS, which the kernel does not offer here{guest}",
            devices.join("ibs_op").display()
        ),
        "GenuineIntel" => format!(
            "no {}: an Intel CPU samples stores by PEBS (mem-stores), and the kernel offers no counters of \
             the CPU here{guest}",
            devices.join("cpu").display()
        ),
        vendor => format!(
            "neither {} nor an event mem-stores of {}, and the CPU ({vendor}) has no other that is known{guest}",
            devices.join("ibs_op").display(),
            devices.join("cpu").display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs;

    fn machine(vendor: &str, files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let dir = tempfile::tempdir().unwrap();
        let cpu = format!("processor\t: 0\nvendor_id\t: {vendor}\nflags\t\t: fpu hypervisor sse\n");
        fs::write(dir.path().join("cpuinfo"), cpu).unwrap();
        for (name, text) in files {
            let path = dir.path().join("bus/event_source/devices").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let machine = Machine::testing(dir.path(), dir.path());
        (dir, machine)
    }

    #[test]
    fn the_event_is_that_of_the_cpu() {
        let find = |vendor: &str, files: &[(&str, &str)]| {
            let (_dir, machine) = machine(vendor, files);
            StoreEvent::find(&machine).unwrap()
        };
        let intel = find(
            "GenuineIntel",
            &[("cpu/type", "4\n"), ("cpu/events/mem-stores", "event=0xd0,umask=0x82\n")],
        );
        let attributes = intel[0].attributes(9973, 4096);
        assert_eq!((attributes.kind, attributes.config, attributes.sample_period), (4, 0x82d0, 9973));
        assert_eq!(attributes.flags >> PRECISE_SHIFT & 3, 2, "precise");
        let unnamed = find("GenuineIntel", &[("cpu/type", "4")]);
        assert_eq!(unnamed[0].attributes(1999, 1).config, ALL_STORES);
        let files = [
            ("cpu_core/type", "4"),
            ("cpu_core/events/mem-stores", "event=0xd0,umask=0x82"),
            ("cpu_atom/type", "10"),
            ("cpu_atom/events/mem-stores", "event=0xd0,umask=0x6"),
        ];
        let hybrid = find("GenuineIntel", &files);
        assert_eq!(hybrid.iter().map(|event| event.config).collect::<Vec<_>>(), [0x82d0, 0x06d0]);
        let amd = find("AuthenticAMD", &[("ibs_op/type", "11"), ("cpu/type", "4")]);
        let attributes = amd[0].attributes(9973, 4096);
        assert_eq!((attributes.kind, attributes.config), (11, COUNT_OPS));
        assert_eq!(attributes.sample_period, 9984, "a multiple of 16, no less than was asked for");
    }

    #[test]
    fn what_is_missing_is_named() {
        let why = |vendor: &str, files: &[(&str, &str)]| {
            let (_dir, machine) = machine(vendor, files);
            let error = StoreEvent::find(&machine).unwrap_err();
            assert_eq!(error.kind(), fastness_base::ErrorKind::Invalid);
            error.to_string()
        };
        let amd = why("AuthenticAMD", &[("cpu/type", "4")]);
        assert!(amd.contains("ibs_op") && amd.contains("IBS") && amd.contains("virtual machine"), "{amd}");
        let intel = why("GenuineIntel", &[]);
        assert!(intel.contains("PEBS") && intel.contains("devices/cpu"), "{intel}");
        assert!(why("Other", &[]).contains("(Other)"));
    }

    #[test]
    fn descriptions_of_events_are_read() {
        for text in ["", "event=d0", "event=0x100", "umask=0x1ff", "event=0xd0,any=0x1", "event", "event=0x0"]
        {
            assert_eq!(config_of(text), None, "{text}");
        }
        assert_eq!(config_of("event=0xcd,umask=0x2,ldlat=0x3\n"), Some(0x02cd));
    }

    #[test]
    fn periods_have_bounds() {
        for period in [0, 99, PERIOD_MAX + 1, u64::MAX] {
            assert!(check_period(period).is_err(), "{period}");
        }
        assert!([1999, 4999, 9973].into_iter().all(|period| check_period(period).is_ok()));
        assert_eq!((round_period(16, 16), round_period(17, 16), round_period(1999, 1)), (16, 32, 1999));
    }
}
