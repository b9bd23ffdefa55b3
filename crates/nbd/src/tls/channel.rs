//! A connection through TLS: decrypts what arrives, encrypts what is sent.
//!
//! Both directions share the library's state, and lock it only to encrypt or decrypt, never during a system
//! call.

use std::io::{self, IoSlice, Read, Write};
use std::mem;

use fastness_sync::{Mutex, lock};
use rustix::io::Errno;
use rustls::ServerConnection;

use super::records::Records;
use crate::error::ConnectionError;
use crate::stream::{Received, Stream};

/// Bytes that are encrypted before they are sent: few system calls, and little memory for each connection.
const ENCRYPTED_BYTES_MAX: usize = 128 << 10;

pub(crate) struct Channel {
    session: Mutex<ServerConnection>,
    /// Used by the thread that receives.
    records: Mutex<Records>,
    /// Used by the thread that sends.
    outgoing: Mutex<Outgoing>,
    is_certified: bool,
}

/// Encrypted bytes on their way to the client.
#[derive(Default)]
pub(super) struct Outgoing {
    encrypted: Vec<u8>,
    sent: usize,
    /// Bytes of the sender's that are in there. It hears of them once all of them are sent; until then it
    /// comes again with the same bytes, which must not be encrypted twice.
    accepted: usize,
}

impl Channel {
    pub(super) fn new(mut session: ServerConnection, records: Records, outgoing: Outgoing) -> Self {
        session.set_buffer_limit(Some(ENCRYPTED_BYTES_MAX));
        let is_certified = session.peer_certificates().is_some();
        let (session, records, outgoing) = (Mutex::new(session), Mutex::new(records), Mutex::new(outgoing));
        Self { session, records, outgoing, is_certified }
    }

    pub(crate) fn is_certified(&self) -> bool {
        self.is_certified
    }

    /// Waits at most once.
    pub(crate) fn receive(&self, stream: &Stream, to: &mut [u8]) -> Result<Received, ConnectionError> {
        let mut records = lock(&self.records);
        let received = self.decrypt(&mut records, to)?;
        if received != Received::Unfinished {
            return Ok(received);
        }
        match stream.receive(records.room()) {
            Ok(0) if stream.is_input_closed() => Ok(Received::End),
            // Not the client's own goodbye: somebody may have cut the connection off.
            Ok(0) => Err(lost(io::ErrorKind::UnexpectedEof.into())),
            Ok(bytes) => {
                records.received(bytes);
                self.decrypt(&mut records, to)
            }
            Err(Errno::AGAIN) if records.is_in_record() => {
                Err(ConnectionError::TimedOut { what: "finish a record of TLS" })
            }
            Err(Errno::AGAIN) => Ok(Received::Nothing),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Fills `to` from what has arrived.
    fn decrypt(&self, records: &mut Records, to: &mut [u8]) -> Result<Received, ConnectionError> {
        let mut session = lock(&self.session);
        let mut done = 0;
        while done < to.len() {
            match session.reader().read(&mut to[done..]) {
                // Bytes that came before the end are taken first.
                Ok(0) if done == 0 => return Ok(Received::End),
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(lost(error)),
                Err(_) if records.whole().is_empty() => break,
                Err(_) => take_record(&mut session, records)?,
            }
        }
        Ok(if done > 0 { Received::Bytes(done) } else { Received::Unfinished })
    }

    /// As [`crate::socket::Socket::send`].
    pub(crate) fn send(&self, stream: &Stream, from: &[IoSlice<'_>], may_wait: bool) -> Result<usize, Errno> {
        let mut outgoing = lock(&self.outgoing);
        if outgoing.accepted == 0 {
            let mut session = lock(&self.session);
            outgoing.accepted = session.writer().write_vectored(from).map_err(|_| Errno::IO)?;
            outgoing.take(&mut session).map_err(|_| Errno::IO)?;
        }
        outgoing.drain(stream, may_wait)?;
        Ok(mem::take(&mut outgoing.accepted))
    }

    /// Sends the end of the stream, if what came before it is sent.
    pub(crate) fn finish(&self, stream: &Stream) {
        let mut outgoing = lock(&self.outgoing);
        if outgoing.accepted > 0 {
            return;
        }
        let mut session = lock(&self.session);
        session.send_close_notify();
        if outgoing.take(&mut session).is_ok() {
            drop(session);
            // A client that is gone misses nothing.
            let _ = outgoing.drain(stream, true);
        }
    }
}

impl Outgoing {
    /// Takes all that the library has to send.
    pub(super) fn take(&mut self, session: &mut ServerConnection) -> io::Result<()> {
        while session.wants_write() {
            session.write_tls(&mut self.encrypted)?;
        }
        Ok(())
    }

    /// Sends it; `EAGAIN` leaves the rest for the next call.
    pub(super) fn drain(&mut self, stream: &Stream, may_wait: bool) -> Result<(), Errno> {
        while self.sent < self.encrypted.len() {
            self.sent += stream.send(&[IoSlice::new(&self.encrypted[self.sent..])], may_wait)?;
        }
        self.encrypted.clear();
        self.sent = 0;
        Ok(())
    }
}

/// Gives the library a part of what has arrived.
pub(super) fn take_record(
    session: &mut ServerConnection,
    records: &mut Records,
) -> Result<(), ConnectionError> {
    let taken = session.read_tls(&mut records.whole()).map_err(lost)?;
    if taken == 0 {
        // Bytes after the client's goodbye.
        return Err(ConnectionError::Protocol { what: "bytes after the end of TLS" });
    }
    records.consume(taken);
    session.process_new_packets().map(drop).map_err(|source| ConnectionError::Tls { source })
}

pub(super) fn lost(error: io::Error) -> ConnectionError {
    ConnectionError::Lost(error)
}
