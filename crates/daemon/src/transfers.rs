//! Streams that are sent and received now: they use the pool, and they have only some of the places at its
//! control socket, so that a pool with many connections that hang still answers.

use std::sync::{Arc, Mutex};

use fastness_base::ErrorKind;
use fastness_sync::lock;

use crate::protocol::Failure;

/// Most at a time.
const TRANSFERS_MAX: usize = 16;

/// What is sent and received.
#[derive(Debug, Default, Clone)]
pub(crate) struct Transfers(Arc<Mutex<Vec<(u64, String)>>>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Transfer {
    all: Transfers,
    number: u64,
}

impl Transfers {
    /// One begins; `what` says of what.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn begin(&self, what: String) -> Result<Transfer, Failure> {
        let mut all = lock(&self.0);
        if all.len() >= TRANSFERS_MAX {
            let text = format!("{TRANSFERS_MAX} snapshots are being sent and received already: wait for one");
            return Err(Failure::refuse(ErrorKind::Retry, text));
        }
        let number = all.last().map_or(0, |(number, _)| number + 1);
        all.push((number, what));
        Ok(Transfer { all: self.clone(), number })
    }

    /// All of them, in words.
    pub(crate) fn users(&self) -> Vec<String> {
        lock(&self.0).iter().map(|(_, what)| what.clone()).collect()
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        lock(&self.all.0).retain(|(number, _)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_only_so_many() {
        let all = Transfers::default();
        let mut begun: Vec<_> = (0..TRANSFERS_MAX).map(|at| all.begin(at.to_string()).unwrap()).collect();
        assert_eq!(all.begin("more".to_owned()).unwrap_err().kind(), ErrorKind::Retry);
        begun.remove(3);
        begun.push(all.begin("more".to_owned()).unwrap());
        assert!(all.users().contains(&"more".to_owned()) && !all.users().contains(&"3".to_owned()));
        drop(begun);
        assert!(all.users().is_empty());
    }
}
