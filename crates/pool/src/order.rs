//! The order of the pool's locks: a thread takes them in rising order of their ranks, and never two of one
//! rank. Builds with debug assertions check that at each lock (`fastness_sync::order`).
//!
//! Outermost first, with the reason:
//!
//! | lock | what it guards | why it is there |
//! |---|---|---|
//! | `thread` | the handle of the txg thread | held until that thread has ended, which needs all others |
//! | `trimming` | that one step of a trim runs | whoever closes the pool waits for it, and holds nothing |
//! | `syncing` | that one txg at a time syncs | held while a whole txg goes to the vdevs |
//! | `naming` | devices that come and go | held until the labels say so |
//! | `log_io` | I/O on the log blocks of a vdev | held alone while sides change |
//! | `hooks` | who is called with each txg | copied before the calls |
//! | `namespace` | the tree of datasets | quotas and names look at datasets under it |
//! | `objects` | a dataset's objects in memory | an object is opened once, not while its dataset goes |
//! | `row` | properties of a dataset | read for a moment, also under `namespace` and `objects` |
//! | `rows` | a shard of a dataset's rows | a new layer is added to the list of its txg |
//! | `settings` | properties and features of the pool | the same |
//! | `changes` | what a txg has changed | lists of layers, and room that is charged to a txg |
//! | `reuse` | that freed space is not used again | shared while a block is read; exclusively for `release` |
//! | `log` | log blocks | may take space among the data |
//! | `meta` | the map of the engine's file | places and frees pages |
//! | `allocator` | which units are free | for a moment, never during I/O |
//! | `next_cleared`, `damage`, `snapshot`, `config`, `uberblock`, `progress`, `base` | values | for a moment |
//!
//! An object's `contents` has no rank. A change holds that lock while quotas read the `namespace`; and
//! a dataset is destroyed with the `namespace` held, and its objects' `contents` inside. The two do not
//! meet, since only objects without handles are destroyed so, and a change needs a handle; an object that is
//! created has its `contents` locked under `objects`, before anything else can have it. Locks of devices and
//! of buffers have no rank either: no lock with a rank is taken under them.

/// See the table, as for all of them.
pub(crate) const THREAD: u8 = 0;
pub(crate) const TRIMMING: u8 = 1;
pub(crate) const SYNCING: u8 = 2;
pub(crate) const NAMING: u8 = 3;
pub(crate) const LOG_IO: u8 = 4;
pub(crate) const HOOKS: u8 = 5;
pub(crate) const NAMESPACE: u8 = 6;
pub(crate) const OBJECTS: u8 = 7;
pub(crate) const ROW: u8 = 8;
pub(crate) const ROWS: u8 = 10;
pub(crate) const SETTINGS: u8 = 11;
pub(crate) const CHANGES: u8 = 12;
pub(crate) const REUSE: u8 = 13;
pub(crate) const LOG: u8 = 14;
pub(crate) const META: u8 = 15;
pub(crate) const ALLOCATOR: u8 = 16;
pub(crate) const NEXT_CLEARED: u8 = 17;
pub(crate) const DAMAGE: u8 = 18;
pub(crate) const SNAPSHOT: u8 = 19;
pub(crate) const CONFIG: u8 = 20;
pub(crate) const UBERBLOCK: u8 = 21;
pub(crate) const PROGRESS: u8 = 22;
pub(crate) const BASE: u8 = 23;
