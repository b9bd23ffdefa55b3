//! The service manager: what it is told, and that it is told without waiting for it.
//!
//! A manager that does not read, because it is stopped or busy, fills its queue. Messages then wait here, the
//! newest of each kind, and the service goes on.
//!
//! Source: sd_notify(3), sd_watchdog_enabled(3).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::notify::{Notified, Socket};

/// For how long a start is extended when an import makes progress.
const EXTENSION: Duration = Duration::from_secs(90);
/// Between two looks where no watchdog waits for one.
const UNWATCHED: Duration = Duration::from_secs(30);

/// The manager of this process, if there is one.
#[derive(Debug, Default)]
pub(super) struct Manager {
    socket: Option<Socket>,
    /// Half of the time after which the manager takes the process for stuck.
    period: Option<Duration>,
    /// Messages that it has not got, oldest first; one of each kind.
    waiting: VecDeque<String>,
    is_ready: bool,
    status: String,
    /// When it was last told that the service moves, and when a start was last extended.
    told: (Option<Instant>, Option<Instant>),
}

impl Manager {
    pub(super) fn of_environment() -> Manager {
        let text = |name| std::env::var(name).ok();
        // For another process, such as a shell that started this one.
        let is_other = text("WATCHDOG_PID").is_some_and(|pid| pid != std::process::id().to_string());
        let period = text("WATCHDOG_USEC").filter(|_| !is_other).and_then(|time| time.parse().ok());
        Manager {
            socket: Socket::of_environment(),
            period: period.filter(|time| *time > 0).map(|time: u64| Duration::from_micros(time) / 2),
            ..Manager::default()
        }
    }

    /// How often it must hear of this process.
    pub(super) fn period(&self) -> Duration {
        self.period.unwrap_or(UNWATCHED)
    }

    /// All pools are imported, as far as they can be.
    pub(super) fn ready(&mut self) {
        if !std::mem::replace(&mut self.is_ready, true) {
            self.tell("READY=1".to_owned());
        }
    }

    pub(super) fn stopping(&mut self) {
        self.tell("STOPPING=1".to_owned());
    }

    pub(super) fn status(&mut self, text: String) {
        if self.status != text {
            self.tell(format!("STATUS={text}"));
            self.status = text;
        }
    }

    /// An import makes progress: it may take longer.
    pub(super) fn extend_start(&mut self) {
        let now = Instant::now();
        let is_due = self.told.1.is_none_or(|told| now.duration_since(told) >= Duration::from_secs(1));
        if !self.is_ready && is_due {
            self.told.1 = Some(now);
            self.tell(format!("EXTEND_TIMEOUT_USEC={}", EXTENSION.as_micros()));
        }
    }

    /// Sends what waits, and that the service moves, if it does and it is time.
    pub(super) fn tend(&mut self, now: Instant, moves: bool) {
        self.send_waiting();
        let Some(period) = self.period else { return };
        // A little early: this is not called at exact times.
        let is_due = self.told.0.is_none_or(|told| now.duration_since(told) >= period * 3 / 4);
        if moves && is_due && self.waiting.is_empty() {
            self.told.0 = Some(now);
            self.tell("WATCHDOG=1".to_owned());
        }
    }

    fn tell(&mut self, message: String) {
        let kind = |message: &str| message.split('=').next().map(str::to_owned);
        self.waiting.retain(|other| kind(other) != kind(&message));
        self.waiting.push_back(message);
        self.send_waiting();
    }

    fn send_waiting(&mut self) {
        while let (Some(socket), Some(message)) = (&self.socket, self.waiting.front()) {
            if socket.send(message) == Notified::QueueFull {
                return;
            }
            self.waiting.pop_front();
        }
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    fn manager() -> (tempfile::TempDir, UnixDatagram, Manager) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let receiver = UnixDatagram::bind(&path).unwrap();
        receiver.set_nonblocking(true).unwrap();
        let period = Some(Duration::from_secs(10));
        let socket = Some(Socket::at(path.as_os_str()).unwrap());
        (folder, receiver, Manager { socket, period, ..Manager::default() })
    }

    fn heard(receiver: &UnixDatagram) -> Vec<String> {
        let mut bytes = [0; 256];
        let received = std::iter::from_fn(|| receiver.recv(&mut bytes).ok().map(|len| bytes[..len].to_vec()));
        received.map(|bytes| String::from_utf8(bytes).unwrap()).collect()
    }

    #[test]
    fn a_watchdog_hears_of_a_service_that_moves_and_of_no_other() {
        let (_folder, receiver, mut manager) = manager();
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        manager.ready();
        manager.ready();
        manager.tend(at(0), true);
        manager.tend(at(1), true);
        assert_eq!(heard(&receiver), ["READY=1", "WATCHDOG=1"]);
        manager.tend(at(8), true);
        assert_eq!(heard(&receiver), ["WATCHDOG=1"]);
        for seconds in 9..100 {
            manager.tend(at(seconds), false);
        }
        assert_eq!(heard(&receiver), [""; 0]);
        manager.tend(at(100), true);
        assert_eq!(heard(&receiver), ["WATCHDOG=1"]);
    }

    #[test]
    fn a_manager_that_does_not_read_gets_the_newest_of_each_kind_later() {
        let (_folder, receiver, mut manager) = manager();
        let mut count = 0;
        while manager.waiting.is_empty() {
            manager.status(format!("{count}"));
            count += 1;
        }
        manager.ready();
        manager.status("last".to_owned());
        manager.stopping();
        let before = heard(&receiver);
        assert_eq!(before.len(), count - 1);
        manager.tend(Instant::now(), false);
        assert_eq!(heard(&receiver), ["READY=1", "STATUS=last", "STOPPING=1"]);
    }

    #[test]
    fn a_manager_that_is_gone_is_forgotten() {
        let (folder, receiver, mut manager) = manager();
        drop((receiver, folder));
        manager.ready();
        assert!(manager.waiting.is_empty());
    }
}
