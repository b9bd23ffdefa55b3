use super::*;

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// A thread that waits, and can be told to choose CPUs itself.
struct Waiting {
    id: ThreadId,
    tell: Sender<CpuSet>,
    heard: std::sync::mpsc::Receiver<()>,
    thread: JoinHandle<()>,
}

fn waiting() -> Waiting {
    let (tell, told) = channel::<CpuSet>();
    let (says, heard) = channel();
    let (id, hears) = channel();
    let thread = std::thread::spawn(move || {
        id.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
        while let Ok(set) = told.recv() {
            sched_setaffinity(None, &set).unwrap();
            says.send(()).unwrap();
        }
    });
    let number = hears.recv().unwrap();
    let id = ThreadId { thread: number, start_time: start_time_of(number).unwrap() };
    Waiting { id, tell, heard, thread }
}

fn cpus_of(thread: ThreadId) -> Vec<usize> {
    let pid = Pid::from_raw(thread.thread as i32);
    let set = sched_getaffinity(pid).unwrap();
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

fn set_of(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    set
}

#[test]
fn a_thread_gets_back_what_it_had() {
    let waiting = waiting();
    let had = cpus_of(waiting.id);
    let last = *had.last().unwrap();
    let mut pins = Pins::default();
    pins.pin(waiting.id, &[last, 5000]).unwrap();
    assert_eq!(cpus_of(waiting.id), [last], "those that it may run on");
    assert!(!pins.has_left(waiting.id));
    assert!(pins.release(waiting.id));
    assert_eq!(cpus_of(waiting.id), had);
    assert!(!pins.release(waiting.id), "once");

    pins.pin(waiting.id, &[last]).unwrap();
    drop(pins);
    assert_eq!(cpus_of(waiting.id), had, "dropped: all of them");

    drop(waiting.tell);
    waiting.thread.join().unwrap();
}

#[test]
fn a_thread_that_has_chosen_itself_is_left_alone() {
    let waiting = waiting();
    let had = cpus_of(waiting.id);
    if had.len() < 2 {
        return;
    }
    let (first, last) = (had[0], had[had.len() - 1]);
    let mut pins = Pins::default();
    pins.pin(waiting.id, &[last]).unwrap();
    waiting.tell.send(set_of(&[first])).unwrap();
    waiting.heard.recv().unwrap();
    assert!(pins.has_left(waiting.id));
    assert!(!pins.release(waiting.id));
    assert_eq!(cpus_of(waiting.id), [first]);
    // Nor is it pinned to where it does not want to be.
    assert!(matches!(pins.pin(waiting.id, &[last]), Err(Refused::Elsewhere)));
    assert_eq!(cpus_of(waiting.id), [first]);
    drop(waiting.tell);
    waiting.thread.join().unwrap();
}

#[test]
fn a_thread_that_has_ended_is_not_taken_for_another_one() {
    let waiting = waiting();
    let id = waiting.id;
    let mut pins = Pins::default();
    let earlier = ThreadId { start_time: id.start_time - 1, ..id };
    assert!(matches!(pins.pin(earlier, &[0]), Err(Refused::Gone)), "its number alone");
    let last = *cpus_of(id).last().unwrap();
    pins.pin(id, &[last]).unwrap();
    drop(waiting.tell);
    waiting.thread.join().unwrap();
    while start_time_of(id.thread).is_some() {
        std::thread::yield_now();
    }
    assert!(pins.has_left(id) && !pins.release(id));
    assert!(matches!(pins.pin(id, &[last]), Err(Refused::Gone)));
}
