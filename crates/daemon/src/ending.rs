//! How a node ends, who is asked before, and what it says until then: people in front of its terminal see
//! clients hang, and should know why.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use fastness_base::ErrorKind;
use fastness_sync::{lock, wait_while_for};

use crate::node::{Ending, Node};
use crate::protocol::Failure;

/// A client that has ended its work is connected a little longer.
const FOR_THOSE_WHO_LEAVE: Duration = Duration::from_millis(500);
/// How often it looks whether the pool is suspended.
const LOOK: Duration = Duration::from_millis(500);

impl Node {
    /// Waits for the end; notes meanwhile when the pool is suspended.
    pub(crate) fn watch(&self, endings: &Receiver<Ending>) -> Ending {
        let mut was_suspended = false;
        loop {
            match endings.recv_timeout(LOOK) {
                Ok(ending) => return ending,
                Err(RecvTimeoutError::Disconnected) => return Ending::Signal,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let is_suspended = self.pool().is_suspended();
            if is_suspended && !was_suspended {
                let advice = self.status().advice.unwrap_or_default();
                self.journal.fail(format!("pool {} is suspended: {advice}", self.name()));
            }
            was_suspended = is_suspended;
        }
    }

    /// Nothing new begins once the node has to end.
    pub(crate) fn refuse_at_end(&self) -> Result<(), Failure> {
        if self.is_ending.load(Ordering::SeqCst) {
            return Err(Failure::refuse(
                ErrorKind::Closed,
                format!("pool {} is being exported", self.name()),
            ));
        }
        Ok(())
    }

    /// Who uses a dataset, or anything of the pool.
    pub(crate) fn users(&self, name: Option<&str>) -> Result<Vec<String>, Failure> {
        let dataset = name.map(|name| self.pool().dataset(name)).transpose()?;
        let mut users = self.services.users(dataset.map(|dataset| dataset.id()));
        if name.is_none() {
            users.extend(self.transfers.users());
        }
        Ok(users)
    }

    /// Refuses what would end the work of others.
    pub(crate) fn refuse_in_use(&self, name: Option<&str>, is_forced: bool) -> Result<(), Failure> {
        let mut users = if is_forced { Vec::new() } else { self.users(name)? };
        let begun = Instant::now();
        while !users.is_empty() && begun.elapsed() < FOR_THOSE_WHO_LEAVE {
            std::thread::sleep(FOR_THOSE_WHO_LEAVE / 20);
            users = self.users(name)?;
        }
        if users.is_empty() {
            return Ok(());
        }
        let what = name.map_or_else(|| format!("pool {}", self.name()), str::to_owned);
        let text = format!("{what} is in use: {}; --force does it all the same", users.join(", "));
        Err(Failure::refuse(ErrorKind::Retry, text))
    }

    pub(crate) fn export(&self, user: u32, is_forced: bool) -> Result<(), Failure> {
        self.refuse_in_use(None, is_forced)?;
        self.note_history(user, "export".to_owned());
        self.quiet();
        let result = self.pool().export();
        *lock(&self.ending) = Some(Ending::Request);
        Ok(result?)
    }

    pub(crate) fn destroy(&self, user: u32, is_forced: bool) -> Result<(), Failure> {
        // What is refused ends nothing.
        self.pool().check_destroyable()?;
        self.refuse_in_use(None, is_forced)?;
        self.note_history(user, "destroy".to_owned());
        self.quiet();
        // Where its devices are stays remembered: it may be imported again.
        let result = self.pool().destroy();
        *lock(&self.ending) = Some(if result.is_ok() { Ending::Destroyed } else { Ending::Request });
        Ok(result?)
    }

    /// Ends a node of a pool that was made just now and never used: destroys the pool, calls `remove` while
    /// its devices are still held, and releases them. A process that waited for them finds no pool.
    pub fn discard(&self, remove: impl FnOnce()) {
        self.quiet();
        if self.pool().destroy().is_ok() {
            remove();
        }
        self.pool().release();
    }

    /// Ends a node that could not begin: exports the pool, as far as that goes.
    pub fn give_up(&self) {
        self.quiet();
        if let Err(error) = self.pool().export() {
            self.journal.fail(format!("the pool was not exported: {}", fastness_base::chain(&error)));
        }
        self.pool().release();
    }

    /// Lets [`run`](Self::run) return, if a request has ended the node; called after its answer has been
    /// sent. Says whether one has.
    pub(crate) fn end_if_asked(&self) -> bool {
        let ending = lock(&self.ending).take();
        if let Some(ending) = ending {
            // The receiver lives as long as the node.
            let _ = self.endings.0.send(ending);
        }
        ending.is_some()
    }

    pub(crate) fn note_released(&self) {
        *lock(&self.released.0) = true;
        self.released.1.notify_all();
    }

    /// Waits until [`run`](Self::run) has let go of the devices, and the control socket is gone: the process
    /// may have other pools, and go on.
    pub(crate) fn wait_released(&self, patience: Duration) {
        let (released, changed) = &self.released;
        drop(wait_while_for(changed, lock(released), patience, |is_released| !*is_released));
    }
}
