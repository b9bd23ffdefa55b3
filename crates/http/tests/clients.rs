//! Clients, polite and other ones, over real sockets.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use fastness_http::{Limits, Page, Server};

const GET: &str = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";

/// A server whose page is a number that grows.
fn serve(limits: Limits) -> Server {
    let made = AtomicU64::new(0);
    serve_page(limits, move || format!("page {}\n", made.fetch_add(1, Ordering::SeqCst)))
}

fn serve_page(limits: Limits, make: impl Fn() -> String + Send + Sync + 'static) -> Server {
    let page = Page { path: "/metrics", content_type: "text/plain", make: Box::new(make) };
    Server::start(TcpListener::bind("127.0.0.1:0").unwrap(), page, limits).unwrap()
}

fn connect(server: &Server) -> TcpStream {
    let client = TcpStream::connect(server.address()).unwrap();
    // A server that hangs fails the test instead.
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    client
}

/// All that a server says until it ends the connection.
fn rest(client: &mut TcpStream) -> String {
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

fn ask(server: &Server, request: &str) -> String {
    let mut client = connect(server);
    client.write_all(request.as_bytes()).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    rest(&mut client)
}

/// Whether a request gets this code; a server that is full may cut the connection off before it can be read.
fn gets(server: &Server, request: &str, code: &str) -> bool {
    let mut client = connect(server);
    let mut answer = Vec::new();
    let _ = client.write_all(request.as_bytes()).and_then(|()| client.read_to_end(&mut answer));
    String::from_utf8(answer).unwrap().starts_with(&format!("HTTP/1.1 {code} "))
}

#[test]
fn a_page_has_its_head_and_its_length() {
    let server = serve(Limits::default());
    let answer = ask(&server, GET);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nDate: "), "{head}");
    assert!(head.contains("\r\nContent-Type: text/plain\r\nContent-Length: 7"), "{head}");
    assert_eq!(body, "page 0\n");
    let answer = ask(&server, &GET.replace("GET", "HEAD"));
    assert!(answer.contains("Content-Length: 7\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[test]
fn other_paths_methods_and_protocols_are_refused() {
    let server = serve(Limits::default());
    for (request, code) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody", "405"),
        ("GET /metrics HTTP/1.1\r\n\r\n", "400"),
        ("GET /metr", "400"),
        ("\x16\x03\x01\x02\x00\x01\x00\x01", "400"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505"),
    ] {
        let answer = ask(&server, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{request:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "a body is no request: {answer}");
    }
    assert!(ask(&server, "PUT /metrics HTTP/1.0\r\n\r\n").contains("\r\nAllow: GET, HEAD\r\n"));
    assert_eq!(ask(&server, ""), "");
}

#[test]
fn requests_that_come_together_are_answered_in_order() {
    let server = serve(Limits::default());
    let other = "GET /other HTTP/1.1\r\nHost: a\r\n\r\n";
    let last = "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let mut client = connect(&server);
    client.write_all(format!("{GET}\r\n{other}{GET}{last}{GET}").as_bytes()).unwrap();
    let answer = rest(&mut client);
    let lines: Vec<_> =
        answer.lines().filter(|line| line.starts_with("HTTP/1.1") || line.starts_with("page")).collect();
    assert_eq!(
        lines,
        [
            "HTTP/1.1 200 OK",
            "page 0",
            "HTTP/1.1 404 Not Found",
            "HTTP/1.1 200 OK",
            "page 1",
            "HTTP/1.1 200 OK",
            "page 2"
        ]
    );
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let server = serve(Limits::default());
    let mut client = connect(&server);
    client.set_nodelay(true).unwrap();
    for byte in GET.as_bytes() {
        client.write_all(&[*byte]).unwrap();
    }
    client.shutdown(Shutdown::Write).unwrap();
    assert!(rest(&mut client).ends_with("page 0\n"));
}

#[test]
fn a_slow_client_is_told_so_and_holds_nobody_up() {
    let limits = Limits { head_time: Duration::from_millis(300), ..Limits::default() };
    let server = serve(limits);
    let mut slow = connect(&server);
    slow.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
    assert!(ask(&server, GET).ends_with("page 0\n"));
    // A byte now and then does not help.
    let mut dribble = slow.try_clone().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let dribbling = std::thread::spawn({
        let is_over = is_over.clone();
        move || {
            while !is_over.load(Ordering::SeqCst) && dribble.write_all(b"A").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    });
    let mut answer = [0; 17];
    slow.read_exact(&mut answer).unwrap();
    is_over.store(true, Ordering::SeqCst);
    dribbling.join().unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408 Requ");
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let limits = Limits { idle_time: Duration::from_millis(100), ..Limits::default() };
    let server = serve(limits);
    assert_eq!(rest(&mut connect(&server)), "");
    let mut client = connect(&server);
    client.write_all(GET.as_bytes()).unwrap();
    assert!(rest(&mut client).ends_with("page 0\n"));
}

#[test]
fn a_huge_head_is_refused_before_it_is_whole() {
    let server = serve(Limits::default());
    let mut client = connect(&server);
    client.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nA: ").unwrap();
    client.write_all(&[b'a'; 16 << 10]).unwrap();
    assert!(rest(&mut client).starts_with("HTTP/1.1 431 "));
    let many = "A: b\r\n".repeat(100);
    assert!(ask(&server, &format!("GET /metrics HTTP/1.1\r\nHost: a\r\n{many}\r\n")).contains(" 431 "));
}

#[test]
fn an_answer_reaches_a_client_that_still_sends() {
    let server = serve(Limits::default());
    let mut client = connect(&server);
    client.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nA: ").unwrap();
    client.write_all(&[b'a'; 16 << 10]).unwrap();
    client.peek(&mut [0]).unwrap();
    // If the connection were closed, the first of these would be refused, and take the answer with it.
    for _ in 0..3 {
        client.write_all(&[b'a'; 8 << 10]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    client.shutdown(Shutdown::Write).unwrap();
    assert!(rest(&mut client).starts_with("HTTP/1.1 431 "));
}

#[test]
fn a_client_that_does_not_read_loses_its_place() {
    let limits = Limits { connections_max: 1, answer_time: Duration::from_millis(200), ..Limits::default() };
    let server = serve_page(limits, || "x".repeat(32 << 20));
    let mut client = connect(&server);
    client.write_all(GET.as_bytes()).unwrap();
    // Until the place is free again; a server that waits for ever fails by the limit of the whole suite.
    while !gets(&server, "HEAD /metrics HTTP/1.0\r\n\r\n", "200") {
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(client);
}

#[test]
fn a_connection_too_many_is_told_so_and_room_comes_back() {
    let server = serve(Limits { connections_max: 3, ..Limits::default() });
    let mut clients: Vec<_> = (0..3).map(|_| connect(&server)).collect();
    for client in &mut clients {
        client.write_all(GET.as_bytes()).unwrap();
        client.read_exact(&mut [0; 15]).unwrap();
    }
    let answer = rest(&mut connect(&server));
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Retry-After"), "{answer}");
    clients.clear();
    while !gets(&server, "GET /metrics HTTP/1.0\r\n\r\n", "200") {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn many_at_once_are_answered_and_share_pages() {
    const CLIENTS: usize = 30;
    let (made, making) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let together = Arc::new(Barrier::new(CLIENTS));
    let server = serve_page(Limits::default(), {
        let (made, making) = (made.clone(), making.clone());
        move || {
            assert_eq!(making.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
            std::thread::sleep(Duration::from_millis(20));
            making.fetch_sub(1, Ordering::SeqCst);
            format!("page {}\n", made.fetch_add(1, Ordering::SeqCst))
        }
    });
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                together.wait();
                for _ in 0..5 {
                    assert!(ask(&server, GET).starts_with("HTTP/1.1 200 OK"));
                }
            });
        }
    });
    assert!(made.load(Ordering::SeqCst) >= 5);
}

#[test]
fn a_panic_is_an_answer() {
    let server = serve_page(Limits::default(), || panic!("no page"));
    assert!(ask(&server, GET).starts_with("HTTP/1.1 500 "));
    assert!(ask(&server, GET).starts_with("HTTP/1.1 500 "));
}

#[test]
fn a_server_that_is_dropped_does_not_listen() {
    let server = serve(Limits::default());
    let address = server.address();
    let mut client = connect(&server);
    client.write_all(GET.as_bytes()).unwrap();
    client.read_exact(&mut [0; 15]).unwrap();
    drop(server);
    assert!(TcpStream::connect(address).is_err());
    // What was connected is served to its end.
    client.write_all(GET.as_bytes()).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert!(rest(&mut client).ends_with("page 1\n"));
}
