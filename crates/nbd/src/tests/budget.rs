use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::budget::{Budget, ServerBudget};

const SHORT: Duration = Duration::from_millis(50);

fn budget(server: &Arc<ServerBudget>) -> Arc<Budget> {
    Arc::new(Budget::new(4, 100, 10, server.clone()))
}

#[test]
fn what_is_given_back_is_all_that_was_taken() {
    let server = Arc::new(ServerBudget::new(120));
    let budget = budget(&server);
    let permits: Vec<_> = [10, 60, 30].map(|bytes| budget.acquire(bytes)).into();
    assert_eq!(server.bytes(), 90, "the first ten are the floor");
    assert!(permits[0].is_alone() && !permits[1].is_alone());
    assert!(budget.try_acquire(1).is_none(), "the connection has all its bytes");
    let empty = budget.acquire(0);
    assert!(budget.try_acquire(0).is_none(), "the connection has all its requests");
    drop((permits, empty));
    assert_eq!(server.bytes(), 0);
    assert!(budget.is_idle());
    budget.wait_idle();
}

#[test]
fn a_greedy_connection_leaves_others_their_floor() {
    let server = Arc::new(ServerBudget::new(100));
    let (greedy, modest) = (budget(&server), budget(&server));
    let _all = greedy.acquire(100);
    assert!(modest.try_acquire(11).is_none());
    assert!(modest.try_acquire(10).is_some());
}

#[test]
fn waiting_for_the_server_is_in_order() {
    let server = Arc::new(ServerBudget::new(100));
    let (first, second, third) = (budget(&server), budget(&server), budget(&server));
    let held = first.acquire(60);
    let (told, heard) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn({
            let (told, second) = (told.clone(), second.clone());
            move || {
                let permit = second.acquire(90);
                told.send(90).unwrap();
                thread::sleep(SHORT);
                drop(permit);
            }
        });
        thread::sleep(SHORT);
        // Would fit, but would overtake.
        assert!(third.try_acquire(30).is_none());
        scope.spawn({
            let third = third.clone();
            move || {
                let _permit = third.acquire(30);
                told.send(30).unwrap();
            }
        });
        assert!(heard.recv_timeout(SHORT).is_err());
        drop(held);
        assert_eq!([heard.recv().unwrap(), heard.recv().unwrap()], [90, 30]);
    });
    assert_eq!(server.bytes(), 0);
}

/// The floor is returned after the client has seen the reply: the next request must wait for that, not for
/// other clients.
#[test]
fn a_small_request_waits_for_its_own_floor_only() {
    let server = Arc::new(ServerBudget::new(100));
    let (greedy, modest) = (budget(&server), budget(&server));
    let _all = greedy.acquire(100);
    let before = modest.acquire(10);
    thread::scope(|scope| {
        let next = scope.spawn(|| drop(modest.acquire(10)));
        thread::sleep(SHORT);
        assert!(!next.is_finished());
        drop(before);
        next.join().unwrap();
    });
}
