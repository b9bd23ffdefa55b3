use super::*;
use fastness_pmem::model::{FOUR_INTERLEAVED, ONE_MODULE};

const GIB: f64 = (1_u64 << 30) as f64;

fn region(name: &str) -> Arc<RegionName> {
    Arc::new(RegionName { kind: "x".to_owned(), path: Some(name.into()), numa_node: None })
}

fn thread(number: u32) -> ThreadId {
    ThreadId { thread: number, start_time: 1 }
}

fn loads(region: &Arc<RegionName>, rates: &[f64]) -> Vec<Load> {
    let of = |(at, rate): (usize, &f64)| Load {
        thread: thread(at as u32 + 1),
        region: region.clone(),
        bytes_per_s: *rate,
    };
    rates.iter().enumerate().map(of).collect()
}

/// (pinned, released) by number.
fn numbers(actions: &[Action]) -> (Vec<u32>, Vec<u32>) {
    let mut numbers = (Vec::new(), Vec::new());
    for action in actions {
        match action {
            Action::Pin(thread, _) => numbers.0.push(thread.thread),
            Action::Release(thread) => numbers.1.push(thread.thread),
        }
    }
    numbers
}

const RULE: PinRule = PinRule { cores: 2, threshold_bytes_per_s: 1000.0 };

fn nothing() -> (Vec<u32>, Vec<u32>) {
    (Vec::new(), Vec::new())
}

#[test]
fn threads_are_pinned_if_they_saturate_the_region_and_are_more_than_cores() {
    let x = region("/x");
    for (rates, expected) in [
        (&[400.0, 400.0, 400.0][..], vec![1, 2, 3]),
        // Below the threshold; as many as cores; one of them writes next to nothing.
        (&[300.0, 300.0, 300.0], vec![]),
        (&[900.0, 900.0], vec![]),
        (&[900.0, 900.0, 9.0], vec![]),
        (&[600.0, 600.0, 9.0, 10.0], vec![1, 2, 4]),
        (&[], vec![]),
    ] {
        let mut policy = Policy::new(RULE);
        assert_eq!(numbers(&policy.decide(&loads(&x, rates))), (expected, vec![]), "{rates:?}");
    }
}

#[test]
fn later_threads_are_pinned_too_and_quiet_ones_are_released_after_three_rounds() {
    let x = region("/x");
    let mut policy = Policy::new(RULE);
    policy.decide(&loads(&x, &[400.0, 400.0, 400.0]));
    // Pinned threads write less, together less than the threshold: that changes nothing.
    assert_eq!(numbers(&policy.decide(&loads(&x, &[200.0, 200.0, 200.0]))), nothing());
    assert_eq!(numbers(&policy.decide(&loads(&x, &[200.0, 200.0, 200.0, 200.0]))), (vec![4], vec![]));
    for _ in 0..2 {
        assert_eq!(numbers(&policy.decide(&loads(&x, &[200.0, 0.0, 200.0, 200.0]))), nothing());
    }
    assert_eq!(numbers(&policy.decide(&loads(&x, &[200.0, 9.0, 200.0, 200.0]))), (vec![], vec![2]));
    // A thread that pauses now and then is not moved about.
    for round in 0..10 {
        let third = if round % 3 == 0 { 200.0 } else { 0.0 };
        assert_eq!(numbers(&policy.decide(&loads(&x, &[200.0, 0.0, third, 200.0]))), nothing(), "{round}");
    }
    // Nothing comes from it any more: it has ended. Two are left, as many as there are cores.
    for _ in 0..2 {
        policy.decide(&loads(&x, &[200.0, 0.0, 200.0]));
    }
    assert_eq!(numbers(&policy.decide(&loads(&x, &[200.0, 0.0, 200.0]))), (vec![], vec![4, 1, 3]));
    assert_eq!(numbers(&policy.decide(&loads(&x, &[400.0, 0.0, 400.0]))), nothing());
    assert_eq!(numbers(&policy.decide(&[])), nothing());
}

#[test]
fn regions_are_limited_one_by_one_and_a_thread_is_pinned_once() {
    let (x, y) = (region("/x"), region("/y"));
    let mut policy = Policy::new(RULE);
    let mut both = loads(&x, &[400.0, 400.0, 400.0]);
    both.extend(loads(&y, &[400.0, 300.0, 200.0]));
    assert_eq!(numbers(&policy.decide(&both)), (vec![1, 2, 3], vec![]), "the load of one region only");
    let mut both = loads(&x, &[400.0, 400.0, 400.0]);
    both.extend(loads(&y, &[400.0, 400.0, 400.0, 400.0]));
    assert_eq!(numbers(&policy.decide(&both)), (vec![4], vec![]), "the others are pinned for the first");
    policy.forget(thread(4));
    assert_eq!(numbers(&policy.decide(&both)), (vec![4], vec![]), "once more");
    let reused = Load { thread: ThreadId { thread: 1, start_time: 2 }, region: x, bytes_per_s: 400.0 };
    assert_eq!(numbers(&policy.decide(&[both, vec![reused]].concat())), (vec![1], vec![]), "another thread");
}

/// Threads that write all the time, on a machine with a CPU for each of them: throughput in GiB/s, and CPU
/// cost in s/GiB, once the policy has had its rounds. The device gives each of those that write at a time
/// its share; pinned threads write as many at a time as there are cores.
fn settled(device: &DeviceProfile, threads: u32, rule: Option<PinRule>) -> (f64, f64) {
    let x = region("/x");
    let mut policy = Policy::new(rule.unwrap_or(RULE));
    let mut pinned = std::collections::BTreeSet::new();
    let (mut throughput, mut busy) = (0.0, 0.0);
    for _ in 0..10 {
        let cores = rule.map_or(0, |rule| rule.cores).min(pinned.len());
        let free = threads as usize - pinned.len();
        let writers = (cores + free) as u32;
        throughput = device.gib_per_s(Node::Local, writers);
        busy = f64::from(writers);
        let share = throughput * GIB / f64::from(writers);
        let rate = |number: u32| {
            if pinned.contains(&number) { share * cores as f64 / pinned.len() as f64 } else { share }
        };
        let loads: Vec<Load> = (1..=threads)
            .map(|number| Load { thread: thread(number), region: x.clone(), bytes_per_s: rate(number) })
            .collect();
        if rule.is_some() {
            for action in policy.decide(&loads) {
                match action {
                    Action::Pin(thread, _) => assert!(pinned.insert(thread.thread)),
                    Action::Release(thread) => assert!(pinned.remove(&thread.thread)),
                }
            }
        }
    }
    (throughput, busy / throughput)
}

/// The shape of figure 6.8: without pinning, throughput falls with the number of threads and the CPU cost
/// grows; with it, both stay where the best number of writers has them.
#[test]
fn on_the_model_throughput_is_held_and_cpu_cost_is_bounded() {
    for device in [&ONE_MODULE, &FOUR_INTERLEAVED] {
        let rule = PinRule::of_device(device);
        let cores = rule.cores as u32;
        let best = (1..=18).map(|threads| settled(device, threads, None).0).fold(0.0, f64::max);
        let at_limit = settled(device, cores, None);
        for threads in 1..=18 {
            let (free, pinned) = (settled(device, threads, None), settled(device, threads, Some(rule)));
            if threads <= cores {
                assert_eq!(free, pinned, "{}: {threads} threads are let be", device.name);
                continue;
            }
            assert!(pinned.0 > 0.95 * best, "{}: {threads} threads, {pinned:?}", device.name);
            assert_eq!(pinned, at_limit, "{}: {threads} threads cost no more than {cores}", device.name);
        }
        let (free, pinned) = (settled(device, 18, None), settled(device, 18, Some(rule)));
        assert!(free.0 < 0.75 * best && free.1 > 4.0 * pinned.1, "{}: {free:?} {pinned:?}", device.name);
    }
}
