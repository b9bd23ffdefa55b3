//! Meters of energy.
//!
//! The CPU's own counters (RAPL: packages and memory) are read through the kernel's powercap framework, or
//! else through perf; a meter outside of the machine says more (disks, fans) and takes their place. Where
//! there is none, there is no figure: [`NoMeter`] says why.
//!
//! Source: dissertation (2025), 4.1.1 and 4.2.1.

mod external;
mod perf;
mod powercap;

use std::sync::Arc;

use fastness_sync::{Mutex, lock};

use crate::error::CostError;
use crate::machine::Machine;

pub use external::External;
use perf::PerfEvents;
use powercap::Powercap;

/// Why there is no meter, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoMeter(pub String);

/// A meter of energy, or the reason why there is none. Clones are the same meter.
#[derive(Debug, Clone)]
pub struct Meter(Arc<Mutex<Kind>>);

#[derive(Debug)]
enum Kind {
    None(NoMeter),
    Powercap(Powercap),
    Perf(PerfEvents),
    External(External),
}

impl Meter {
    /// The counters of this machine's CPUs, if they can be read.
    pub fn of_machine(machine: &Machine) -> Meter {
        let kind = match Powercap::find(machine) {
            Ok(zones) => Kind::Powercap(zones),
            Err(powercap) => match PerfEvents::find(machine) {
                Ok(events) => Kind::Perf(events),
                Err(perf) => Kind::None(NoMeter(format!("{powercap}; {perf}"))),
            },
        };
        Meter(Arc::new(Mutex::new(kind)))
    }

    /// A meter outside of the machine.
    pub fn of_external(meter: External) -> Meter {
        Meter(Arc::new(Mutex::new(Kind::External(meter))))
    }

    /// What it is.
    ///
    /// # Errors
    /// [`NoMeter`].
    pub fn describe(&self) -> Result<String, NoMeter> {
        match &*lock(&self.0) {
            Kind::None(why) => Err(why.clone()),
            Kind::Powercap(zones) => Ok(zones.describe()),
            Kind::Perf(events) => Ok(events.describe()),
            Kind::External(meter) => Ok(meter.describe()),
        }
    }

    /// Energy since some time in the past, in J; `None` without a meter. Only differences mean anything.
    ///
    /// # Errors
    /// Of the counters' files; [`CostError::Silent`], [`CostError::Ended`] or [`CostError::Line`] of an
    /// external meter.
    pub(crate) fn joules(&self) -> Result<Option<f64>, CostError> {
        match &mut *lock(&self.0) {
            Kind::None(_) => Ok(None),
            Kind::Powercap(zones) => zones.joules().map(Some),
            Kind::Perf(events) => events.joules().map(Some),
            Kind::External(meter) => meter.joules(),
        }
    }

    /// Bytes that an external meter counts.
    ///
    /// # Errors
    /// As [`joules`](Self::joules).
    pub(crate) fn bytes(&self) -> Result<Option<u64>, CostError> {
        match &*lock(&self.0) {
            Kind::External(meter) => meter.bytes(),
            _ => Ok(None),
        }
    }
}
