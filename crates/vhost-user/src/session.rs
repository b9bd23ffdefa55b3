//! A front end that is connected: what it has set up, and the queues that are in use.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use fastness_sync::{Mutex, lock};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::config::{self, CONFIG_BYTES, WRITEBACK_AT, feature};
use crate::disk::Disk;
use crate::inflight::Inflight;
use crate::memory::{Layout, Memory, REGIONS_MAX};
use crate::message::{CONFIG_CHANGED, Message, ProtocolError, front, protocol};
use crate::options::Options;
use crate::queue::{Queue, Shared};
use crate::ring::{Addresses, Ring, SIZE_MAX};
use crate::socket;
use crate::stats::Counters;
use crate::thread::{Note, Running};

const PROTOCOL_FEATURES: u64 = protocol::MQ
    | protocol::REPLY_ACK
    | protocol::BACKEND_REQ
    | protocol::CONFIG
    | protocol::INFLIGHT
    | protocol::MEM_SLOTS;
/// Longest configuration space that a front end may ask for.
const CONFIG_MAX: usize = 256;
/// How long a front end may take to accept a message that it did not ask for.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// What was set for a queue.
#[derive(Default)]
struct Setup {
    size: u16,
    base: u16,
    addresses: Option<Addresses>,
    kick: Option<OwnedFd>,
    call: Option<Arc<OwnedFd>>,
    is_enabled: bool,
    running: Option<Running>,
}

/// Where the front end is told of changes.
pub(crate) type Channel = Arc<Mutex<Option<UnixStream>>>;

/// Tells the front end to read the configuration again; one that does not listen is not told.
pub(crate) fn config_changed(channel: &Channel) {
    if let Some(stream) = &*lock(channel) {
        let _ = socket::send(stream, CONFIG_CHANGED, false, &[], None);
    }
}

pub(crate) struct Session {
    stream: UnixStream,
    shared: Arc<Shared>,
    options: Options,
    note: Note,
    features: u64,
    protocol: u64,
    /// The driver's choice, while it may choose.
    is_write_back: bool,
    queues: Vec<Setup>,
    inflight: Option<Inflight>,
    channel: Channel,
    /// Of each queue.
    counters: Vec<Arc<Counters>>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.pause();
    }
}

/// What a request is answered with.
enum Answer {
    /// Nothing but an acknowledgement, if one was asked for.
    Done,
    Bytes(Vec<u8>),
    File(Vec<u8>, OwnedFd),
}

fn number(value: u64) -> Answer {
    Answer::Bytes(value.to_ne_bytes().to_vec())
}

impl Session {
    pub(crate) fn new(
        stream: UnixStream,
        disk: Arc<dyn Disk>,
        options: Options,
        note: Note,
        channel: Channel,
        counters: Vec<Arc<Counters>>,
    ) -> Session {
        let memory = ArcSwap::from_pointee(Memory::default());
        let shared = Arc::new(Shared { disk, memory, is_write_through: AtomicBool::new(true) });
        let queues = (0..options.queues).map(|_| Setup::default()).collect();
        Session {
            stream,
            shared,
            options,
            note,
            features: 0,
            protocol: 0,
            is_write_back: true,
            queues,
            inflight: None,
            channel,
            counters,
        }
    }

    /// Serves the front end until it closes the connection.
    ///
    /// # Errors
    /// It broke a rule, or the connection.
    pub(crate) fn run(&mut self) -> Result<(), ProtocolError> {
        while let Some(mut message) = socket::next(&self.stream)? {
            let (request, wants_ack) = (message.request, message.needs_reply());
            let is_acked = wants_ack && self.protocol & protocol::REPLY_ACK != 0;
            let answer = match self.handle(&mut message) {
                Err(ProtocolError::Message { reason, .. }) if is_acked => {
                    (self.note)(format!("a virtual machine's request {request} was refused: {reason}"));
                    number(1)
                }
                Ok(Answer::Done) if is_acked => number(0),
                other => other?,
            };
            match answer {
                Answer::Done => {}
                Answer::Bytes(bytes) => socket::send(&self.stream, request, true, &bytes, None)?,
                Answer::File(bytes, file) => {
                    socket::send(&self.stream, request, true, &bytes, Some(&file))?;
                }
            }
            if self.shared.memory.load().is_lost() {
                return Err(ProtocolError::MemoryLost);
            }
        }
        Ok(())
    }

    fn handle(&mut self, message: &mut Message) -> Result<Answer, ProtocolError> {
        match message.request {
            front::GET_FEATURES => return Ok(number(config::features(&*self.shared.disk))),
            front::SET_FEATURES => self.set_features(message)?,
            front::SET_OWNER | front::RESET_OWNER | front::SET_VRING_ERR => {}
            front::GET_PROTOCOL_FEATURES => return Ok(number(PROTOCOL_FEATURES)),
            front::SET_PROTOCOL_FEATURES => self.protocol = message.u64(0)? & PROTOCOL_FEATURES,
            front::GET_QUEUE_NUM => return Ok(number(self.options.queues.into())),
            front::GET_MAX_MEM_SLOTS => return Ok(number(REGIONS_MAX as u64)),
            front::SET_MEM_TABLE => self.set_memory(message)?,
            front::ADD_MEM_REG => {
                let (layout, file) = (layout(message, 8)?, message.file()?);
                let memory = self.shared.memory.load().with(layout, file)?;
                self.shared.memory.store(Arc::new(memory));
                self.resume()?;
            }
            front::REM_MEM_REG => {
                let gone = layout(message, 8)?;
                let memory = self.shared.memory.load().without(&gone);
                let memory = memory.ok_or_else(|| refuse(message, "no such memory region"))?;
                self.pause();
                self.shared.memory.store(Arc::new(memory));
                self.resume()?;
            }
            front::SET_VRING_NUM => {
                let size = message.u32(4)?;
                if size > SIZE_MAX.into() || !size.is_power_of_two() {
                    return Err(refuse(message, format!("a queue of {size} entries")));
                }
                self.stopped(message)?.size = size as u16;
            }
            front::SET_VRING_BASE => {
                let base = message.u32(4)?;
                self.stopped(message)?.base = base as u16;
            }
            front::SET_VRING_ADDR => {
                let (descriptors, used) = (message.u64(8)?, message.u64(16)?);
                let addresses = Addresses { descriptors, used, available: message.u64(24)? };
                self.stopped(message)?.addresses = Some(addresses);
            }
            front::GET_VRING_BASE => {
                let index = message.u32(0)?;
                let setup = self.stopped(message)?;
                setup.kick = None;
                let bytes = [index, setup.base.into()].map(u32::to_ne_bytes);
                return Ok(Answer::Bytes(bytes.concat()));
            }
            front::SET_VRING_KICK => {
                let kick = event(message)?.ok_or_else(|| refuse(message, "a queue without a kick"))?;
                self.stopped(message)?.kick = Some(kick);
                self.resume()?;
            }
            front::SET_VRING_CALL => {
                let call = event(message)?.map(Arc::new);
                let setup = self.setup(message)?;
                setup.call.clone_from(&call);
                if let Some(running) = &setup.running {
                    running.queue.call.store(call);
                    // What was answered before it knew where to call.
                    running.queue.call().map_err(|error| refuse(message, error.to_string()))?;
                }
            }
            front::SET_VRING_ENABLE => {
                let is_enabled = message.u32(4)? != 0;
                if is_enabled {
                    self.setup(message)?.is_enabled = true;
                    self.resume()?;
                } else {
                    self.stopped(message)?.is_enabled = false;
                }
            }
            front::SET_BACKEND_REQ_FD => {
                let stream = UnixStream::from(message.file()?);
                stream.set_write_timeout(Some(SEND_TIMEOUT))?;
                *lock(&self.channel) = Some(stream);
            }
            front::GET_CONFIG => return self.config(message),
            front::SET_CONFIG => {
                let (offset, size) = (message.u32(0)? as usize, message.u32(4)?);
                if (offset, size) != (WRITEBACK_AT, 1) {
                    return Err(refuse(message, "only the write-back setting can be changed"));
                }
                let value = message.payload.get(12).copied();
                self.is_write_back = value.ok_or_else(|| refuse(message, "no value"))? != 0;
                self.set_write_through();
            }
            front::GET_INFLIGHT_FD => {
                let (queues, size) = (message.u16(16)?, message.u16(18)?);
                if queues > self.options.queues {
                    return Err(refuse(message, format!("{queues} queues")));
                }
                let (inflight, file, len) = Inflight::create(queues, size)?;
                self.inflight = Some(inflight);
                let mut bytes = [len, 0].map(u64::to_ne_bytes).concat();
                bytes.extend([queues, size].map(u16::to_ne_bytes).concat());
                bytes.extend([0; 4]);
                return Ok(Answer::File(bytes, file));
            }
            front::SET_INFLIGHT_FD => {
                let (len, offset) = (message.u64(0)?, message.u64(8)?);
                let (queues, size, file) = (message.u16(16)?, message.u16(18)?, message.file()?);
                self.inflight = Some(Inflight::open(file, offset, len, queues, size)?);
            }
            _ => return Err(refuse(message, "it is not known, or was not offered")),
        }
        Ok(Answer::Done)
    }

    fn set_features(&mut self, message: &Message) -> Result<(), ProtocolError> {
        let features = message.u64(0)?;
        if features & !config::features(&*self.shared.disk) != 0 {
            return Err(refuse(message, format!("features {features:#x} were not offered")));
        }
        self.pause();
        self.features = features;
        self.set_write_through();
        if features & feature::PROTOCOL_FEATURES == 0 {
            self.queues.iter_mut().for_each(|queue| queue.is_enabled = true);
        }
        self.resume()
    }

    fn set_write_through(&self) {
        let may_choose = self.features & feature::CONFIG_WCE != 0;
        let is_write_back = if may_choose { self.is_write_back } else { self.features & feature::FLUSH != 0 };
        self.shared.is_write_through.store(!is_write_back, Ordering::SeqCst);
    }

    fn set_memory(&mut self, message: &mut Message) -> Result<(), ProtocolError> {
        let count = message.u32(0)? as usize;
        let files = std::mem::take(&mut message.files);
        if count > REGIONS_MAX || files.len() != count {
            return Err(refuse(message, format!("{count} regions, {} descriptors", files.len())));
        }
        let mut memory = Memory::default();
        for (number, file) in files.into_iter().enumerate() {
            memory = memory.with(layout(message, 8 + 32 * number)?, file)?;
        }
        self.pause();
        self.shared.memory.store(Arc::new(memory));
        self.resume()
    }

    fn config(&self, message: &Message) -> Result<Answer, ProtocolError> {
        let (offset, size) = (message.u32(0)? as usize, message.u32(4)? as usize);
        if offset.checked_add(size).is_none_or(|end| end > CONFIG_MAX) {
            return Err(refuse(message, format!("{size} bytes of the configuration from {offset} on")));
        }
        let mut space = [0; CONFIG_MAX];
        let is_write_back = !self.shared.is_write_through.load(Ordering::SeqCst) || self.features == 0;
        let known = config::config(&*self.shared.disk, self.options.queues, is_write_back);
        space[..CONFIG_BYTES].copy_from_slice(&known);
        let mut bytes = message.payload[..12].to_vec();
        bytes.extend(&space[offset..offset + size]);
        Ok(Answer::Bytes(bytes))
    }

    /// The queue that a message is about.
    fn setup(&mut self, message: &Message) -> Result<&mut Setup, ProtocolError> {
        let number = message.u32(0)? & 0xff;
        let setup = self.queues.get_mut(number as usize);
        setup.ok_or_else(|| refuse(message, format!("there is no queue {number}")))
    }

    /// The queue that a message is about, after its threads have ended.
    fn stopped(&mut self, message: &Message) -> Result<&mut Setup, ProtocolError> {
        let setup = self.setup(message)?;
        if let Some(running) = setup.running.take() {
            setup.base = running.stop();
        }
        Ok(setup)
    }

    /// Ends the threads of all queues, after their requests in work.
    fn pause(&mut self) {
        for queue in &mut self.queues {
            if let Some(running) = queue.running.take() {
                queue.base = running.stop();
            }
        }
    }

    /// Starts every queue that can be. One whose addresses are in no memory yet waits for more of it.
    fn resume(&mut self) -> Result<(), ProtocolError> {
        let has_event_index = self.features & feature::EVENT_INDEX != 0;
        let memory = self.shared.memory.load_full();
        for (number, setup) in self.queues.iter_mut().enumerate() {
            let (Some(addresses), Some(kick)) = (&setup.addresses, &setup.kick) else { continue };
            if setup.running.is_some() || !setup.is_enabled || setup.size == 0 {
                continue;
            }
            let Ok(ring) = Ring::new(&memory, addresses, setup.size, setup.base, has_event_index) else {
                continue;
            };
            let table = self.inflight.as_ref().and_then(|all| all.table(number as u16, setup.size));
            let made = Queue::new(self.shared.clone(), ring, table, self.counters[number].clone());
            let (queue, again) =
                made.map_err(|error| ProtocolError::message(front::SET_VRING_ADDR, error.to_string()))?;
            queue.call.store(setup.call.clone());
            let (kick, note) = (kick.try_clone()?, self.note.clone());
            setup.running = Some(Running::start(queue, again, kick, self.options.polling, note)?);
        }
        Ok(())
    }
}

fn refuse(message: &Message, reason: impl Into<String>) -> ProtocolError {
    ProtocolError::message(message.request, reason)
}

/// A description of a memory region.
fn layout(message: &Message, at: usize) -> Result<Layout, ProtocolError> {
    Ok(Layout {
        guest: message.u64(at)?,
        len_bytes: message.u64(at + 8)?,
        user: message.u64(at + 16)?,
        file_offset: message.u64(at + 24)?,
    })
}

/// The descriptor to signal with, unless the message says that there is none. No thread ever waits in it.
fn event(message: &mut Message) -> Result<Option<OwnedFd>, ProtocolError> {
    const HAS_NONE: u64 = 1 << 8;
    if message.u64(0)? & HAS_NONE != 0 {
        return Ok(None);
    }
    let file = message.file()?;
    let socket_error = |errno: rustix::io::Errno| ProtocolError::Socket(errno.into());
    let flags = fcntl_getfl(&file).map_err(socket_error)?;
    fcntl_setfl(&file, flags | OFlags::NONBLOCK).map_err(socket_error)?;
    Ok(Some(file))
}
