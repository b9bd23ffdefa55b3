//! Whether a pool's own thread moves.

use std::time::{Duration, Instant};

use fastness_store::Pulse;

/// What was last seen of a pool.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The beats, and since when there are no more of them.
    seen: Option<(u64, Instant)>,
}

impl Watch {
    /// Whether it rests, or has moved within `patience`.
    pub(super) fn moves(&mut self, pulse: Pulse, now: Instant, patience: Duration) -> bool {
        match self.seen {
            Some((beats, since)) if beats == pulse.beats && !pulse.is_at_rest => {
                now.saturating_duration_since(since) < patience
            }
            _ => {
                self.seen = Some((pulse.beats, now));
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_neither_rests_nor_beats_is_stuck_after_a_while() {
        let (begun, patience) = (Instant::now(), Duration::from_secs(10));
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut watch = Watch::default();
        let mut moves =
            |seconds, beats, is_at_rest| watch.moves(Pulse { beats, is_at_rest }, at(seconds), patience);
        assert!(moves(0, 1, true) && moves(100, 1, true), "it rests");
        assert!(moves(101, 1, false) && moves(109, 1, false));
        assert!(!moves(110, 1, false) && !moves(500, 1, false));
        assert!(moves(501, 2, false), "it goes on");
        assert!(moves(510, 2, false) && !moves(511, 2, false));
        assert!(moves(512, 2, true) && moves(521, 2, false) && !moves(522, 2, false));
    }
}
