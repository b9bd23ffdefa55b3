//! The control socket of a node.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fastness_base::ErrorKind;
use fastness_nbd::{Endpoint, Listener};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::socket_peercred;

use crate::error::StartError;
use crate::node::Node;
use crate::protocol::{Failure, Message, Request};
use crate::transfer::Transferred;

/// Maximum number of concurrent clients; one more gets an error and is disconnected.
const CLIENTS_MAX: usize = 32;
/// Longest request: a few names and properties.
const REQUEST_BYTES_MAX: u64 = 1 << 20;
/// A client that neither sends nor receives for this long is taken for dead.
const IDLE: Duration = Duration::from_secs(60);

/// A listener, and a thread for each client. Stops when dropped, without waiting for requests in progress;
/// then whoever has ended the node hears that another process can have the pool, and its name.
#[derive(Debug)]
pub struct Control {
    node: Arc<Node>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Listens at `path` (mode 0600). A socket whose owner is dead is replaced.
    ///
    /// # Errors
    /// [`StartError::Control`]: another process listens there, or the path cannot be used.
    pub fn start(node: &Arc<Node>, path: &Path) -> Result<Control, StartError> {
        let control = |source| StartError::Control { path: path.to_owned(), source };
        let system = |source| StartError::System { what: "start the control thread", source };
        let listener = Listener::bind(&Endpoint::Unix(path.to_owned())).map_err(control)?;
        let (wake, woken) = UnixStream::pair().map_err(system)?;
        let (node, of_thread) = (node.clone(), node.clone());
        let thread = std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || accept(&listener, &woken, &of_thread))
            .map_err(system)?;
        Ok(Control { node, wake, thread: Some(thread) })
    }

    /// Whether a process listens at `path`.
    pub fn is_alive(path: &Path) -> bool {
        UnixStream::connect(path).is_ok()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // If the pipe is full, the thread is awake.
        let _ = (&self.wake).write(&[0]);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // Only now: the name of the socket is free, too.
        self.node.note_released();
    }
}

fn accept(listener: &Listener, woken: &UnixStream, node: &Arc<Node>) {
    let clients = Arc::new(AtomicUsize::new(0));
    loop {
        let mut waits =
            [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN), PollFd::new(woken, PollFlags::IN)];
        match poll(&mut waits, None) {
            Ok(_) if !waits[1].revents().is_empty() => return,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        let Ok(socket) = listener.accept() else {
            // The client is gone again, or no descriptors are left: others wait in the backlog.
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        let mut socket = UnixStream::from(socket);
        let Some(place) = Place::take(&clients) else {
            let text = format!("pool {} has {CLIENTS_MAX} clients already", node.name());
            // The socket is non-blocking, and its buffer has space for a line.
            let _ = say(&mut socket, &Message::Failed(Failure::refuse(ErrorKind::Retry, text)));
            continue;
        };
        let node = node.clone();
        // If no thread starts, the client sees the connection close, and its place is free again.
        let _ = std::thread::Builder::new().name("control-client".to_owned()).spawn(move || {
            let _place = place;
            // A client that disconnected is not an error.
            let _ = serve(socket, &node);
        });
    }
}

/// A client among [`CLIENTS_MAX`], until it is dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(clients: &Arc<AtomicUsize>) -> Option<Place> {
        let place = Place(clients.clone());
        (clients.fetch_add(1, Ordering::SeqCst) < CLIENTS_MAX).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn serve(socket: UnixStream, node: &Node) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(IDLE))?;
    socket.set_write_timeout(Some(IDLE))?;
    let user = socket_peercred(&socket)?.uid.as_raw();
    let mut output = socket.try_clone()?;
    let mut input = BufReader::new(socket);
    let mut line = Vec::new();
    loop {
        line.clear();
        let len = (&mut input).take(REQUEST_BYTES_MAX).read_until(b'\n', &mut line)?;
        if len == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') {
            let text = format!("a request has {REQUEST_BYTES_MAX} bytes at most, and ends with a newline");
            return say(&mut output, &Message::Failed(Failure::refuse(ErrorKind::Invalid, text)));
        }
        let result = match serde_json::from_slice::<Request>(&line) {
            Ok(request @ (Request::Send(_) | Request::Receive { .. })) => {
                return transfer(node, user, &request, &mut input, &mut output);
            }
            Ok(request) => {
                let mut tell = |report| say(&mut output, &Message::Progress(report)).is_ok();
                surviving(|| node.handle_of(user, request, &mut tell))
            }
            Err(error) => Err(Failure::new(ErrorKind::Invalid, &error)),
        };
        let said = say(&mut output, &result.map_or_else(Message::Failed, Message::Done));
        if node.end_if_asked() {
            // Its client waits for the end of the connection: then another process can have the pool.
            node.wait_released(IDLE);
            return said;
        }
        said?;
    }
}

/// A request with bulk data; the connection ends with it. It may take hours, and either side may wait for a
/// network: only a client that is gone ends it.
fn transfer(
    node: &Node,
    user: u32,
    request: &Request,
    input: &mut BufReader<UnixStream>,
    output: &mut UnixStream,
) -> io::Result<()> {
    output.set_read_timeout(None)?;
    output.set_write_timeout(None)?;
    let transferred = surviving(|| Ok(node.transfer(user, request, input, output)));
    let answer = match transferred {
        Ok(Some(Transferred::Answer(answer))) => answer,
        Ok(Some(Transferred::Gone) | None) => return Ok(()),
        Err(failure) => Err(failure),
    };
    say(output, &answer.map_or_else(Message::Failed, Message::Done))
}

/// A panic is answered, too: the client must not take it for the end of the process.
fn surviving<T>(request: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // This crate takes poisoned locks all the same; see `lock`.
    catch_unwind(AssertUnwindSafe(request)).unwrap_or_else(|_| {
        let text = "the process that has the pool panicked at this request; its standard error says where";
        Err(Failure::refuse(ErrorKind::Bug, text))
    })
}

fn say(output: &mut UnixStream, message: &Message) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    output.write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_answer_and_gives_the_place_back() {
        let clients = Arc::new(AtomicUsize::new(0));
        let place = Place::take(&clients).unwrap();
        let died = std::thread::spawn(move || {
            let _place = place;
            panic!("a client's thread");
        });
        assert!(died.join().is_err());
        assert_eq!(clients.load(Ordering::SeqCst), 0);
        let failure = surviving::<()>(|| panic!("a request")).unwrap_err();
        assert_eq!(failure.kind(), ErrorKind::Bug);
    }

    #[test]
    fn places_are_as_many_as_clients() {
        let clients = Arc::default();
        let mut places: Vec<_> = (0..CLIENTS_MAX).map(|_| Place::take(&clients).unwrap()).collect();
        assert!(Place::take(&clients).is_none());
        places.pop();
        assert!(Place::take(&clients).is_some());
    }
}
