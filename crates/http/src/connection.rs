//! A connection: its requests, one after the other.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::date::{http_date, now};
use crate::limits::Limits;
use crate::page::Pages;
use crate::request::{Code, Request, parse};

/// What is read after an answer that ends the connection, and for how long: if it were left, the kernel would
/// take the answer back. Source: RFC 9112, 9.6.
const LINGER_BYTES: usize = 64 << 10;
const LINGER_TIME: Duration = Duration::from_secs(1);

pub(crate) struct Connection<'a> {
    pub(crate) socket: TcpStream,
    pub(crate) pages: &'a Pages,
    pub(crate) limits: Limits,
}

impl Connection<'_> {
    /// Answers until the client, or a mistake of it, ends the connection.
    pub(crate) fn serve(mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        loop {
            let request = match self.receive(&mut bytes)? {
                Ok(Some(request)) => request,
                Ok(None) => return Ok(()),
                Err(code) => {
                    self.answer(code, false, false)?;
                    return self.linger();
                }
            };
            bytes.drain(..request.head_bytes);
            self.answer(request.code, request.is_head, request.goes_on)?;
            if !request.goes_on {
                return self.linger();
            }
        }
    }

    /// The next request; none if the client has nothing more to say.
    fn receive(&mut self, bytes: &mut Vec<u8>) -> io::Result<Result<Option<Request>, Code>> {
        let mut deadline = Instant::now() + self.limits.idle_time;
        let mut has_begun = false;
        loop {
            // A client may send an empty line before a request. Source: RFC 9112, 2.2.
            let blanks = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            bytes.drain(..blanks);
            if !bytes.is_empty() {
                match parse(bytes, self.pages.page.path) {
                    Ok(None) if bytes.len() >= self.limits.head_bytes_max => {
                        return Ok(Err(Code::HeadTooLarge));
                    }
                    Ok(None) => {}
                    done => return Ok(done),
                }
                if !has_begun {
                    (has_begun, deadline) = (true, Instant::now() + self.limits.head_time);
                }
            }
            let mut more = [0; 2048];
            let room = more.len().min(self.limits.head_bytes_max - bytes.len());
            match self.read_by(deadline, &mut more[..room]) {
                Ok(0) => return Ok(if bytes.is_empty() { Ok(None) } else { Err(Code::BadRequest) }),
                Ok(len) => bytes.extend_from_slice(&more[..len]),
                Err(error) if is_timeout(&error) && has_begun => return Ok(Err(Code::RequestTimeout)),
                Err(error) if is_timeout(&error) => return Ok(Ok(None)),
                Err(error) => return Err(error),
            }
        }
    }

    fn read_by(&mut self, deadline: Instant, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            self.socket.set_read_timeout(Some(left(deadline)?))?;
            match self.socket.read(bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn answer(&mut self, code: Code, is_head: bool, goes_on: bool) -> io::Result<()> {
        let page = if code == Code::Ok { self.pages.since(Instant::now()) } else { None };
        let code = if code == Code::Ok && page.is_none() { Code::InternalError } else { code };
        let words = format!("{}\n", code.line());
        let (body, content_type) = match &page {
            Some(page) => (page.as_str(), self.pages.page.content_type),
            None => (words.as_str(), "text/plain; charset=utf-8"),
        };
        let mut answer = format!(
            "HTTP/1.1 {}\r\nDate: {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n",
            code.line(),
            http_date(now()),
            body.len()
        );
        if code == Code::MethodNotAllowed {
            answer += "Allow: GET, HEAD\r\n";
        }
        if !goes_on {
            answer += "Connection: close\r\n";
        }
        answer += "\r\n";
        if !is_head {
            answer += body;
        }
        let deadline = Instant::now() + self.limits.answer_time;
        let mut rest = answer.as_bytes();
        while !rest.is_empty() {
            self.socket.set_write_timeout(Some(left(deadline)?))?;
            match self.socket.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(len) => rest = &rest[len..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Ends the connection so that the client gets the answer.
    fn linger(mut self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)?;
        let deadline = Instant::now() + LINGER_TIME;
        let mut bytes = [0; 4096];
        let mut read_bytes = 0;
        while read_bytes < LINGER_BYTES {
            match self.read_by(deadline, &mut bytes)? {
                0 => break,
                len => read_bytes += len,
            }
        }
        Ok(())
    }
}

/// Tells a client that there are too many, without waiting for it.
pub(crate) fn refuse(mut socket: TcpStream) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let words = format!("{}\n", Code::Unavailable.line());
    let answer = format!(
        "HTTP/1.1 {}\r\nRetry-After: 5\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{words}",
        Code::Unavailable.line(),
        words.len()
    );
    socket.write_all(answer.as_bytes())?;
    socket.shutdown(Shutdown::Write)?;
    // What it has sent already; the rest may cost it the answer.
    let _ = socket.read(&mut [0; 4096]);
    Ok(())
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// What is left until then.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}
