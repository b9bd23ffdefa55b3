use super::*;

use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;

#[test]
fn jobs_run_on_workers_and_what_they_return_comes_back() {
    let workers = Workers::start(2, &[]).unwrap();
    let here = std::thread::current().id();
    let mut borrowed = vec![1, 2, 3];
    let sum = workers.run(|| {
        assert_ne!(std::thread::current().id(), here);
        borrowed.push(4);
        borrowed.iter().sum::<i32>()
    });
    assert_eq!((sum, borrowed.len(), workers.count()), (10, 4, 1));
}

#[test]
fn no_more_jobs_run_at_a_time_than_there_are_workers() {
    let workers = Workers::start(2, &[]).unwrap();
    let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..300 {
                    workers.run(|| {
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    });
                }
            });
        }
    });
    assert_eq!(workers.count(), 2400);
    assert!(most.into_inner() <= 2);
}

#[test]
fn a_panic_of_a_job_is_the_callers_and_the_worker_goes_on() {
    let workers = Workers::start(1, &[]).unwrap();
    for _ in 0..3 {
        let panicked = catch_unwind(AssertUnwindSafe(|| workers.run(|| panic!("of the job"))));
        assert_eq!(fastness_base::panic_text(&*panicked.unwrap_err()), "of the job");
    }
    assert_eq!(workers.run(|| 7), 7);
}

/// Nobody waits for ever when the workers are to end while jobs are there.
#[test]
fn jobs_that_are_there_are_run_before_workers_end() {
    let workers = Arc::new(Workers::start(1, &[]).unwrap());
    let busy = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| workers.run(|| busy.wait()));
        // The worker has it, and no other job.
        while workers.count() == 0 {
            std::thread::yield_now();
        }
        let queued: Vec<_> = (0..4)
            .map(|job| {
                scope.spawn({
                    let workers = &workers;
                    move || workers.run(|| job)
                })
            })
            .collect();
        while lock(&workers.queue.waiting).jobs.len() < 4 {
            std::thread::yield_now();
        }
        lock(&workers.queue.waiting).is_over = true;
        busy.wait();
        let done: Vec<i32> = queued.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(done, [0, 1, 2, 3]);
    });
}

#[test]
fn workers_run_where_they_are_told_to() {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let cpu = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap();
    let workers = Workers::start(2, &[cpu]).unwrap();
    let of_worker = workers.run(|| rustix::thread::sched_getaffinity(None).unwrap());
    assert_eq!((of_worker.count(), of_worker.is_set(cpu)), (1, true));
    let error = Workers::start(2, &[CpuSet::MAX_CPU - 1]).unwrap_err();
    assert!(matches!(error, GateError::Cpus { .. }), "{error}");
    assert_eq!(error.kind(), fastness_base::ErrorKind::Invalid);
}
