//! Requests that send and receive snapshots: a line, then bulk data (`frames`), then a line.

use std::io::{BufRead, Read, Write};

use fastness_base::ErrorKind;
use fastness_store::PoolError;
use fastness_zvol::{Outgoing, ReceiveOptions, TransferError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::frames::{FrameReader, FrameWriter};
use crate::node::Node;
use crate::protocol::{Failure, Message, Request, SendRequest};

/// How long a stream is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamReport {
    /// The snapshot.
    pub snapshot: String,
    /// Whether the receiver needs another one.
    pub is_increment: bool,
    /// Where it goes on in the volume.
    pub resumes_at: u64,
    /// Bytes of the stream.
    pub stream_bytes: u64,
    /// Bytes of the volume in it.
    pub data_bytes: u64,
}

/// What was received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedReport {
    /// Full name of the new snapshot.
    pub snapshot: String,
    /// Bytes of the volume in the stream.
    pub data_bytes: u64,
}

/// How a transfer ends that began.
pub(crate) enum Transferred {
    /// The answer.
    Answer(Result<Value, Failure>),
    /// The client is gone.
    Gone,
}

impl Node {
    fn outgoing(&self, request: &SendRequest) -> Result<Outgoing, Failure> {
        let token = request.token.as_deref().map(str::parse).transpose();
        match (token.map_err(TransferError::Stream)?, &request.snapshot) {
            (Some(token), None) => Ok(Outgoing::resume(&self.store, &token)?),
            (None, Some(snapshot)) => {
                let opened = Outgoing::open(&self.store, snapshot, request.from.as_deref());
                opened.map_err(|error| in_words(error, request.from.as_deref()))
            }
            _ => Err(Failure::refuse(ErrorKind::Invalid, "name a snapshot, or a token")),
        }
    }

    /// How long a stream would be.
    pub(crate) fn stream_size(&self, request: &SendRequest) -> Result<StreamReport, Failure> {
        let outgoing = self.outgoing(request)?;
        let (about, size) = (outgoing.about(), outgoing.size()?);
        Ok(StreamReport {
            snapshot: about.name.clone(),
            is_increment: about.from.is_some(),
            resumes_at: about.resumes_at,
            stream_bytes: size.stream_bytes,
            data_bytes: size.data_bytes,
        })
    }

    /// Carries out a request that has bulk data, for the user with this number; `None`: it is none of these.
    /// The connection is good for nothing else afterwards.
    pub(crate) fn transfer(
        &self,
        user: u32,
        request: &Request,
        input: &mut impl BufRead,
        output: &mut impl Write,
    ) -> Option<Transferred> {
        let begin = |output: &mut dyn Write| {
            let mut line = serde_json::to_vec(&Message::Stream).unwrap_or_default();
            line.push(b'\n');
            output.write_all(&line)
        };
        if !matches!(request, Request::Send(_) | Request::Receive { .. }) {
            return None;
        }
        if let Err(failure) = self.refuse_at_end() {
            return Some(Transferred::Answer(Err(failure)));
        }
        match request {
            Request::Send(send) => {
                let outgoing = match self.outgoing(send) {
                    Ok(outgoing) => outgoing,
                    Err(failure) => return Some(Transferred::Answer(Err(failure))),
                };
                let of = match self.transfers.begin(format!("{} is being sent", outgoing.about().name)) {
                    Ok(of) => of,
                    Err(failure) => return Some(Transferred::Answer(Err(failure))),
                };
                if begin(output).is_err() {
                    return Some(Transferred::Gone);
                }
                let mut frames = FrameWriter::new(&mut *output);
                let sent = outgoing.write(&mut frames);
                drop(of);
                if frames.end().is_err() {
                    return Some(Transferred::Gone);
                }
                Some(Transferred::Answer(sent.map(|()| Value::Null).map_err(Failure::from)))
            }
            Request::Receive { name, is_resumable, is_forced } => {
                let options = ReceiveOptions { is_resumable: *is_resumable, is_forced: *is_forced };
                let volume = name.split('@').next().unwrap_or_default().to_owned();
                let of = self.refuse_served(std::slice::from_ref(&volume));
                let of = of.and_then(|()| self.transfers.begin(format!("{volume} is being received")));
                let of = match of {
                    Ok(of) => of,
                    Err(failure) => return Some(Transferred::Answer(Err(failure))),
                };
                if begin(output).is_err() {
                    return Some(Transferred::Gone);
                }
                let answer = self.receive(name, &mut FrameReader::new(input), options);
                drop(of);
                if let (Ok(_), Some(command)) = (&answer, request.for_history()) {
                    self.note_history(user, command);
                }
                Some(Transferred::Answer(answer))
            }
            _ => None,
        }
    }

    fn receive(&self, name: &str, input: &mut dyn Read, options: ReceiveOptions) -> Result<Value, Failure> {
        let received = fastness_zvol::receive(&self.store, name, input, options);
        let received = received.map_err(|error| in_words(error, None))?;
        self.journal.note(format!("{} received", received.snapshot));
        let report = ReceivedReport { snapshot: received.snapshot, data_bytes: received.data_bytes };
        serde_json::to_value(report).map_err(|error| Failure::new(ErrorKind::Bug, &error))
    }

    /// Discards what came of a volume.
    pub(crate) fn abort_receiving(&self, volume: &str) -> Result<(), Failure> {
        fastness_zvol::abort_receiving(&self.store, volume)?;
        self.journal.note(format!("what had come of {volume} is discarded"));
        Ok(())
    }

    /// Discards what a crash has left of streams that were not to be kept.
    pub(crate) fn drop_interrupted(&self) {
        match fastness_zvol::drop_interrupted(&self.store) {
            Ok(volumes) => volumes.iter().for_each(|volume| {
                self.journal
                    .note(format!("{volume} was not received as a whole: what had come is discarded"));
            }),
            Err(error) if matches!(error.of_pool(), Some(PoolError::ReadOnly(_))) => {}
            Err(error) => self.journal.note(format!("what had come of volumes is still there: {error}")),
        }
    }
}

/// What to do, where only an option of the command says that.
fn in_words(error: TransferError, from: Option<&str>) -> Failure {
    let text = match error.of_pool() {
        Some(PoolError::ChangedSince(_) | PoolError::NotNewest { .. }) => {
            format!(
                "{error}; --force goes back to the snapshot that the increment is on, and loses what came after"
            )
        }
        Some(PoolError::Invalid { .. }) if from.is_some() => {
            format!(
                "{} is no state of before: name an older snapshot of the same volume",
                from.unwrap_or_default()
            )
        }
        _ => return error.into(),
    };
    Failure::refuse(error.kind(), text)
}
