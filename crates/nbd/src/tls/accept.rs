//! The TLS handshake, with limits in time and bytes.

use std::io;
use std::time::Instant;

use rustix::io::Errno;
use rustls::ServerConnection;

use super::channel::{Channel, Outgoing, lost, take_record};
use super::files::Tls;
use super::records::Records;
use crate::error::ConnectionError;
use crate::stream::{Stream, remaining};

/// Bytes that a client may send in a handshake; a chain of certificates has a few KiB.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;

impl Channel {
    /// Does the server's part of the handshake; a client has time until `deadline`, however much it sends.
    ///
    /// # Errors
    /// The client took too long, sent what is not TLS, or has no certificate that is good. It was told.
    pub(crate) fn accept(tls: &Tls, stream: &Stream, deadline: Instant) -> Result<Channel, ConnectionError> {
        let session =
            ServerConnection::new(tls.config()).map_err(|source| ConnectionError::Tls { source })?;
        let mut accepting =
            Accepting { session, records: Records::new(), outgoing: Outgoing::default(), received: 0 };
        loop {
            accepting.answer(stream, deadline)?;
            if !accepting.session.is_handshaking() {
                let Accepting { session, records, outgoing, .. } = accepting;
                return Ok(Channel::new(session, records, outgoing));
            }
            accepting.listen(stream, deadline)?;
        }
    }
}

struct Accepting {
    session: ServerConnection,
    records: Records,
    outgoing: Outgoing,
    /// Bytes, so far.
    received: usize,
}

impl Accepting {
    fn answer(&mut self, stream: &Stream, deadline: Instant) -> Result<(), ConnectionError> {
        self.outgoing.take(&mut self.session).map_err(lost)?;
        loop {
            stream.set_send_timeout(remaining(deadline, "agree on TLS")?)?;
            match self.outgoing.drain(stream, true) {
                Ok(()) => return Ok(()),
                Err(Errno::AGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn listen(&mut self, stream: &Stream, deadline: Instant) -> Result<(), ConnectionError> {
        stream.set_receive_timeout(remaining(deadline, "agree on TLS")?)?;
        let bytes = match stream.receive(self.records.room()) {
            Ok(0) => return Err(lost(io::ErrorKind::UnexpectedEof.into())),
            Ok(bytes) => bytes,
            // The deadline decides.
            Err(Errno::AGAIN) => 0,
            Err(errno) => return Err(errno.into()),
        };
        self.received += bytes;
        if self.received > HANDSHAKE_BYTES_MAX {
            return Err(ConnectionError::Protocol { what: "TLS handshake far too long" });
        }
        self.records.received(bytes);
        // What comes after the handshake stays where it is.
        while self.session.is_handshaking() && !self.records.whole().is_empty() {
            if let Err(error) = take_record(&mut self.session, &mut self.records) {
                // The alert says why; it does not matter whether it arrives.
                let _ = self.answer(stream, deadline);
                return Err(error);
            }
        }
        Ok(())
    }
}
