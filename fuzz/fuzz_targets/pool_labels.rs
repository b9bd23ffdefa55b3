//! Labels of a pool's device: anything in the slots, with right heads and checksums or without.
#![no_main]

use arbitrary::Arbitrary;
use fastness_pool::fuzzing::{FuzzedSlot, config, labels};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Slot {
    number: u8,
    is_sealed: bool,
    guids: (u8, u8),
    payload: Vec<u8>,
}

impl Slot {
    fn view(&self) -> FuzzedSlot<'_> {
        FuzzedSlot {
            number: self.number,
            is_sealed: self.is_sealed,
            guids: (self.guids.0.into(), self.guids.1.into()),
            payload: &self.payload,
        }
    }
}

fuzz_target!(|slots: Vec<Slot>| {
    slots.iter().for_each(|slot| config(&slot.payload));
    labels(&slots.iter().take(8).map(Slot::view).collect::<Vec<_>>());
});
