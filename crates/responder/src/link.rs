//! Messages between the process that serves a cache and those that have leases, over a Unix socket.
//!
//! A client asks, and the server answers, one after the other. Shape of a message: 8 words of 64 bits, little
//! endian: its kind, then what the variants below have, in their order; descriptors come with the first byte.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::backing::FileId;
use crate::lease::Lease;

const WORDS: usize = 8;
const BYTES: usize = WORDS * 8;
/// Descriptors that come with a message.
pub const DESCRIPTORS: usize = 2;

/// What a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// To take part: answered by [`Tell::Welcome`].
    Join,
    /// To use the file directly whose descriptor comes with this: [`Tell::Lease`] or [`Tell::No`].
    Lease,
    /// Room for a write: [`Tell::Yes`], [`Tell::No`] or [`Tell::Failed`].
    Room {
        /// Of this file.
        file: FileId,
        /// From here on.
        offset: u64,
        /// So many bytes.
        len: u64,
    },
    /// The file whose descriptor comes with this goes through the mount until it was closed: [`Tell::Yes`],
    /// [`Tell::No`] or [`Tell::Failed`].
    Mount,
}

/// What the server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tell {
    /// Descriptors of the region and of the shared memory come with it.
    Welcome {
        /// Number of the client.
        me: u32,
        /// Number of the mount, as `stat` says it.
        device: u64,
        /// An ordinary file stands in for PM.
        is_emulated: bool,
    },
    /// The descriptor of the directory's file comes with it.
    Lease(Lease),
    /// It was done.
    Yes,
    /// The client has to go the ordinary way.
    No,
    /// It failed with this error number.
    Failed(i32),
}

type Words = [u64; WORDS];

fn words<const N: usize>(these: [u64; N]) -> Words {
    let mut words = [0; WORDS];
    words[..N].copy_from_slice(&these);
    words
}

impl Ask {
    fn encode(&self) -> Words {
        match *self {
            Ask::Join => words([1]),
            Ask::Lease => words([2]),
            Ask::Room { file, offset, len } => words([3, file.inode, file.generation, offset, len]),
            Ask::Mount => words([4]),
        }
    }

    fn decode(words: &Words) -> Option<Ask> {
        let [kind, inode, generation, offset, len, ..] = *words;
        match kind {
            1 => Some(Ask::Join),
            2 => Some(Ask::Lease),
            3 => Some(Ask::Room { file: FileId { inode, generation }, offset, len }),
            4 => Some(Ask::Mount),
            _ => None,
        }
    }
}

impl Tell {
    fn encode(&self) -> Words {
        match *self {
            Tell::Welcome { me, device, is_emulated } => words([1, me.into(), device, is_emulated.into()]),
            Tell::Lease(Lease { slot, generation, key, file }) => {
                words([2, slot.into(), generation.into(), key, file.inode, file.generation])
            }
            Tell::Yes => words([3]),
            Tell::No => words([4]),
            Tell::Failed(errno) => words([5, errno as u64]),
        }
    }

    fn decode(words: &Words) -> Option<Tell> {
        let [kind, first, second, third, inode, birth, ..] = *words;
        match kind {
            1 => Some(Tell::Welcome {
                me: u32::try_from(first).ok()?,
                device: second,
                is_emulated: third != 0,
            }),
            2 => Some(Tell::Lease(Lease {
                slot: u32::try_from(first).ok()?,
                generation: u32::try_from(second).ok()?,
                key: third,
                file: FileId { inode, generation: birth },
            })),
            3 => Some(Tell::Yes),
            4 => Some(Tell::No),
            5 => Some(Tell::Failed(first as i32)),
            _ => None,
        }
    }
}

/// Descriptors that came with a message.
pub type Descriptors = [Option<OwnedFd>; DESCRIPTORS];

fn send(socket: &UnixStream, words: &Words, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut bytes = [0; BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut sent = 0;
    while sent < BYTES {
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if sent == 0 && !descriptors.is_empty() {
            let fits = ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
            assert!(fits, "at most two descriptors");
        }
        match sendmsg(socket, &[IoSlice::new(&bytes[sent..])], &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(count) => sent += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// `None`: the other end has closed the connection.
fn receive(socket: &UnixStream) -> io::Result<Option<(Words, Descriptors)>> {
    let (mut bytes, mut got) = ([0; BYTES], 0);
    let mut descriptors = Descriptors::default();
    while got < BYTES {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut buffers = [IoSliceMut::new(&mut bytes[got..])];
        let count = match recvmsg(socket, &mut buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => received.bytes,
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                // More than there are places for are closed.
                for (place, descriptor) in descriptors.iter_mut().zip(received) {
                    *place = Some(descriptor);
                }
            }
        }
        match count {
            0 if got == 0 => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => got += count,
        }
    }
    let mut words = [0; WORDS];
    for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(place.try_into().expect("eight bytes"));
    }
    Ok(Some((words, descriptors)))
}

fn invalid() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// Asks, and waits for the answer.
///
/// # Errors
/// Of the socket: the server has ended.
pub fn ask(
    socket: &UnixStream,
    ask: &Ask,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<(Tell, Descriptors)> {
    send(socket, &ask.encode(), descriptor.as_slice())?;
    let (words, descriptors) = receive(socket)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((Tell::decode(&words).ok_or_else(invalid)?, descriptors))
}

/// The next question; `None`: the client has ended.
///
/// # Errors
/// Of the socket, or it is no question.
pub fn hear(socket: &UnixStream) -> io::Result<Option<(Ask, Option<OwnedFd>)>> {
    let Some((words, [first, _])) = receive(socket)? else { return Ok(None) };
    Ok(Some((Ask::decode(&words).ok_or_else(invalid)?, first)))
}

/// Answers.
///
/// # Errors
/// Of the socket.
pub fn tell(socket: &UnixStream, tell: &Tell, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    send(socket, &tell.encode(), descriptors)
}

/// Whether the other end is still there.
pub fn is_connected(socket: impl AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut polled = [PollFd::new(&socket, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let closed = PollFlags::HUP | PollFlags::ERR | PollFlags::RDHUP | PollFlags::NVAL;
    !matches!(poll(&mut polled, Some(&now)), Ok(1..)) || !polled[0].revents().intersects(closed)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs::File;
    use std::io::Write;

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let (client, server) = UnixStream::pair().unwrap();
        let file = FileId { inode: 3, generation: u64::MAX };
        let asks = [Ask::Join, Ask::Lease, Ask::Room { file, offset: 5, len: 6 }, Ask::Mount];
        let tells = [
            Tell::Welcome { me: 7, device: 8, is_emulated: true },
            Tell::Lease(Lease { slot: 9, generation: 10, key: 11, file }),
            Tell::Yes,
            Tell::No,
            Tell::Failed(-5),
        ];
        let null = File::open("/dev/null").unwrap();
        for (said, answer) in asks.iter().cycle().zip(&tells) {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (heard, descriptor) = hear(&server).unwrap().unwrap();
                    assert_eq!((heard, descriptor.is_some()), (*said, true));
                    tell(&server, answer, &[null.as_fd(), null.as_fd()]).unwrap();
                });
                let (told, descriptors) = ask(&client, said, Some(null.as_fd())).unwrap();
                assert_eq!(told, *answer);
                assert!(descriptors.iter().all(Option::is_some));
            });
        }
        assert!(is_connected(&client));
        drop(server);
        assert!(!is_connected(&client));
        assert!(ask(&client, &Ask::Join, None).is_err());
    }

    #[test]
    fn nonsense_is_an_error() {
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(&[0xff; BYTES]).unwrap();
        assert_eq!(hear(&server).unwrap_err().kind(), io::ErrorKind::InvalidData);
        client.write_all(&[1; 7]).unwrap();
        drop(client);
        assert_eq!(hear(&server).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(hear(&server).unwrap().is_none());
    }
}
