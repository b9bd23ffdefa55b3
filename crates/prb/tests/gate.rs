//! A PRB on a region with a gate: its writers and all others share one limit.

use std::sync::Arc;

use fastness_pmem::Region;
use fastness_pmem::gate::{Gate, Policy};
use fastness_prb::{Config, HdlHeader, Prb, Txg, Wait};

#[test]
fn an_entry_waits_for_the_slot_that_another_writer_of_the_region_has() {
    let gate = Arc::new(Gate::new(Policy::Semaphore { writers_max: 1 }).unwrap());
    let region = Region::anonymous(1 << 20).unwrap().with_gate(gate.clone());
    let (of_prb, mut of_other) = region.into_range().split_at(1 << 19).unwrap();
    let prb = Prb::format(Config::default(), vec![of_prb]).unwrap();
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil).unwrap();
    let _header = hdl.create_log().unwrap();
    hdl.header_synced().unwrap();
    hdl.write_dependent_entry(Txg(1), &[1; 4096], Wait::Fail).unwrap();
    assert_eq!(gate.stats().waits, 0, "it was free");
    let slots = gate.slots().unwrap().clone();
    let taken = slots.enter();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| hdl.write_dependent_entry(Txg(1), &[2; 4096], Wait::Fail).unwrap());
        while slots.waits() == 0 {
            std::thread::yield_now();
        }
        assert_eq!(prb.stats().entries, 1, "the entry is not written yet");
        drop(taken);
        writing.join().unwrap();
    });
    assert_eq!((prb.stats().entries, prb.stats().slot_waits), (2, 0), "no commit slot was waited for");
    of_other.write_pm(0, &[3; 4096]).unwrap();
}
