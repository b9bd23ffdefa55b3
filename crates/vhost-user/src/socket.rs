//! The connection to a front end.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::message::{FILES_MAX, HEADER_BYTES, Message, PAYLOAD_MAX, ProtocolError, encode, header};

/// Receives some bytes, and the descriptors that come with them; zero bytes: the front end has closed.
fn receive(stream: &UnixStream, to: &mut [u8], files: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = retry_on_intr(|| {
        recvmsg(stream, &mut [IoSliceMut::new(to)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    Ok(received.bytes)
}

fn receive_all(stream: &UnixStream, mut to: &mut [u8], files: &mut Vec<OwnedFd>) -> io::Result<()> {
    while !to.is_empty() {
        match receive(stream, to, files)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => to = &mut to[bytes..],
        }
    }
    Ok(())
}

/// The next request; `None` if the front end has closed the connection.
pub(crate) fn next(stream: &UnixStream) -> Result<Option<Message>, ProtocolError> {
    let (mut bytes, mut files) = ([0; HEADER_BYTES], Vec::new());
    let first = receive(stream, &mut bytes, &mut files)?;
    if first == 0 {
        return Ok(None);
    }
    receive_all(stream, &mut bytes[first..], &mut files)?;
    let (request, flags, len) = header(bytes);
    if len > PAYLOAD_MAX {
        return Err(ProtocolError::message(request, format!("a payload of {len} bytes is too long")));
    }
    let mut payload = vec![0; len];
    receive_all(stream, &mut payload, &mut files)?;
    if files.len() > FILES_MAX {
        return Err(ProtocolError::message(request, "too many descriptors"));
    }
    Message::new(request, flags, payload, files).map(Some)
}

/// Sends a message, with a descriptor if there is one.
pub(crate) fn send(
    stream: &UnixStream,
    request: u32,
    is_reply: bool,
    payload: &[u8],
    file: Option<&OwnedFd>,
) -> io::Result<()> {
    let bytes = encode(request, is_reply, payload);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let borrowed = file.map(AsFd::as_fd);
    let files = borrowed.as_slice();
    if !files.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(files));
    }
    let mut sent = 0;
    while sent < bytes.len() {
        let rest = [IoSlice::new(&bytes[sent..])];
        sent += retry_on_intr(|| sendmsg(stream, &rest, &mut ancillary, SendFlags::NOSIGNAL))?;
        ancillary.clear();
    }
    Ok(())
}
