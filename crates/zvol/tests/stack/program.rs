//! What a program can do: its steps.

use fastness_testkit::media::Failing;
use std::fmt;
use std::sync::Arc;

/// A step. Volumes, disks and banks are named by their place in the world's lists.
#[derive(Debug, Clone)]
pub enum Step {
    Write {
        volume: usize,
        client: usize,
        offset: usize,
        data: Arc<[u8]>,
        is_fua: bool,
    },
    Zero {
        volume: usize,
        client: usize,
        offset: usize,
        len: usize,
        is_fua: bool,
        is_discard: bool,
    },
    /// Writes until the end of the volume, or of the pool.
    Fill {
        volume: usize,
        byte: u8,
    },
    Flush {
        volume: usize,
        client: usize,
    },
    Compare {
        volume: usize,
    },
    Sync,
    /// The logs have nothing to do for a while.
    Idle,
    Create {
        size: u64,
        block: u64,
    },
    Destroy {
        volume: usize,
    },
    Close {
        volume: usize,
    },
    Open {
        volume: usize,
    },
    Snapshot {
        volume: usize,
    },
    /// Snapshots by their place in the list of all.
    DestroySnapshot {
        nth: usize,
    },
    Rollback {
        nth: usize,
    },
    Clone {
        nth: usize,
    },
    /// A clone and the volume that it began in change places.
    Promote {
        volume: usize,
    },
    /// A snapshot is sent, and received as a volume or as the next state of one.
    Receive {
        seed: u64,
    },
    /// Streams of which not everything has come, by their place in the list of all.
    Resume {
        nth: usize,
        seed: u64,
    },
    AbortReceive {
        nth: usize,
    },
    Resize {
        volume: usize,
        size: u64,
    },
    /// Each block of it is sure to find room from now on, or no more.
    SetThick {
        volume: usize,
        is_on: bool,
    },
    /// The other volumes are written to the end, and then this one.
    Squeeze {
        volume: usize,
        byte: u8,
    },
    AddRegion {
        bank: usize,
    },
    AddMirror,
    RemoveRegion,
    AttachRegion {
        bank: usize,
    },
    DetachRegion {
        bank: usize,
    },
    ReplaceRegion {
        old: usize,
        new: usize,
    },
    AddVdev {
        is_mirror: bool,
    },
    RemoveVdev {
        nth: usize,
    },
    Scrub,
    Trim {
        seed: u64,
    },
    Attach {
        to: usize,
    },
    Replace {
        disk: usize,
    },
    Detach {
        disk: usize,
    },
    Offline {
        disk: usize,
    },
    Online {
        disk: usize,
    },
    AddData,
    Fail {
        disk: usize,
        how: Failing,
        seed: u64,
    },
    Heal,
    CutRegion {
        bank: usize,
        end: usize,
    },
    Clear {
        seed: u64,
    },
    /// A change of files that the seed draws.
    ChangeFiles {
        seed: u64,
    },
    SyncFiles {
        seed: u64,
    },
    /// Clients of files, all at one time.
    RaceFiles {
        seed: u64,
    },
    /// All of them at one time.
    Race {
        ops: Vec<Step>,
        seed: u64,
    },
    /// A copy of a disk, or of a bank, is taken.
    Copy {
        of: usize,
        is_bank: bool,
    },
}

impl Step {
    /// A request of a client, which may be told that there is no room.
    pub fn is_request(&self) -> bool {
        use Step::*;
        matches!(self, Write { .. } | Fill { .. } | Zero { .. } | Create { .. } | Resize { .. })
            || matches!(self, SetThick { .. } | Squeeze { .. } | ChangeFiles { .. } | RaceFiles { .. })
            || self.is_of_snapshots()
            || self.is_of_streams()
    }

    pub fn is_of_snapshots(&self) -> bool {
        use Step::*;
        matches!(self, Snapshot { .. } | DestroySnapshot { .. } | Rollback { .. } | Clone { .. })
            || matches!(self, Promote { .. })
    }

    pub fn is_of_streams(&self) -> bool {
        use Step::*;
        matches!(self, Receive { .. } | Resume { .. } | AbortReceive { .. })
    }

    pub fn is_of_devices(&self) -> bool {
        use Step::*;
        matches!(self, Scrub | Trim { .. } | AddData | Heal | Fail { .. } | CutRegion { .. })
            || matches!(self, Attach { .. } | Replace { .. } | Detach { .. } | Offline { .. } | Online { .. })
    }

    /// What most programs do all the time.
    pub fn is_plain(&self) -> bool {
        use Step::*;
        matches!(self, Write { .. } | Fill { .. } | Zero { .. } | Flush { .. } | Compare { .. } | Sync | Idle)
            || matches!(self, ChangeFiles { .. } | SyncFiles { .. } | RaceFiles { .. })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fua = |is_fua: &bool| if *is_fua { " fua" } else { "" };
        match self {
            Step::Write { volume, client, offset, data, is_fua } => {
                let (len, first) = (data.len(), &data[..data.len().min(4)]);
                write!(f, "write v{volume}.{client} {offset}+{len} {first:02x?}{}", fua(is_fua))
            }
            Step::Zero { volume, client, offset, len, is_fua, is_discard } => {
                let what = if *is_discard { "discard" } else { "zero" };
                write!(f, "{what} v{volume}.{client} {offset}+{len}{}", fua(is_fua))
            }
            Step::Flush { volume, client } => write!(f, "flush v{volume}.{client}"),
            Step::Race { ops, .. } => {
                let ops: Vec<String> = ops.iter().map(ToString::to_string).collect();
                write!(f, "at one time: {}", ops.join(" | "))
            }
            other => write!(f, "{other:?}"),
        }
    }
}
