use std::net::Shutdown;
use std::os::unix::net::UnixListener;

use super::*;

/// A client, and the other end of its connection.
fn pair() -> (Client, UnixStream) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tank.control");
    let listener = UnixListener::bind(&path).unwrap();
    let client = Client::connect(&path, "tank").unwrap();
    (client, listener.accept().unwrap().0)
}

fn ask(client: &mut Client) -> ClientError {
    client.call::<serde_json::Value>(&Request::Status).unwrap_err()
}

#[test]
fn every_way_in_which_a_process_goes_has_one_name() {
    let before_the_request: fn(UnixStream) = drop;
    let half_shut = |peer: UnixStream| {
        peer.shutdown(Shutdown::Both).unwrap();
        std::mem::forget(peer);
    };
    let half_a_line = |mut peer: UnixStream| {
        peer.write_all(b"{\"done\":").unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        std::mem::forget(peer);
    };
    for go in [before_the_request, half_shut, half_a_line] {
        let (mut client, peer) = pair();
        go(peer);
        let error = ask(&mut client);
        assert!(matches!(error, ClientError::Gone { .. }), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::Closed);
    }
}

/// What the peer sent before it hung up counts, although the request can no longer be sent.
#[test]
fn a_refusal_without_a_request_is_heard() {
    let (mut client, mut peer) = pair();
    let refusal = Message::Failed(Failure::refuse(ErrorKind::Retry, "busy"));
    peer.write_all(&[serde_json::to_vec(&refusal).unwrap(), b"\n".to_vec()].concat()).unwrap();
    drop(peer);
    assert_eq!(ask(&mut client).kind(), ErrorKind::Retry);
}

#[test]
fn what_is_no_answer_is_not_taken_for_an_end() {
    let (mut client, mut peer) = pair();
    peer.write_all(b"hello\n").unwrap();
    assert!(matches!(ask(&mut client), ClientError::Strange { .. }));
}
