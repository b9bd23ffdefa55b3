//! TLS: who comes through, what is said of it, and that nothing ever goes on without it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use fastness_nbd::ClientError;
use fastness_nbd::wire::reply;

use crate::support::Bench;
use crate::tls::{self, Secure};
use crate::{INVALID, address, connect, pool};

#[test]
fn a_volume_is_served_through_tls_only() {
    let bench = pool();
    let [certified, without] = tls::folder(&bench.path("pki"));
    let said = bench.ok("volume serve tank/a --tcp 127.0.0.1:0 --tls-dir pki --tls-verify-peer");
    let at = address(&said);
    assert_eq!(said, format!("nbds://{at}/tank/a\n"));
    let refused = connect(at, "tank/a").map(drop);
    assert!(matches!(refused, Err(ClientError::Refused { code: reply::ERR_TLS_REQD, .. })), "{refused:?}");
    assert!(Secure::connect(at, "tank/a", &without).is_err());
    let mut client = Secure::connect(at, "tank/a", &certified).unwrap();
    client.write(4096, b"through TLS");
    assert_eq!(client.read(4096, 11), b"through TLS");

    let status = bench.ok("status tank");
    let line = status.lines().find(|line| line.contains("nbds://")).unwrap();
    assert!(line.contains("read-write, TLS") && line.contains("1, 1 certified"), "{status}");
    assert_eq!(bench.json("status tank")[0]["served"][0]["tls"]["certified"], 1);

    // Another volume there is served in the same way, or not at all.
    let said = bench.fails(&format!("volume serve tank/b --tcp {at}"), INVALID);
    assert!(said.contains("--tls-dir") && said.contains("in the same way"), "{said}");
    bench.ok(&format!("volume serve tank/b --tcp {at} --tls-dir pki --tls-verify-peer"));
    assert_eq!(Secure::connect(at, "tank/b", &certified).unwrap().read(0, 4), [0; 4]);

    drop(client);
    bench.ok("pool export tank --force");
    bench.ok("pool import tank");
    assert!(connect(at, "tank/a").is_err());
    assert_eq!(Secure::connect(at, "tank/a", &certified).unwrap().read(4096, 11), b"through TLS");
}

/// Certificates that are gone are no reason to serve without them.
#[test]
fn without_its_certificates_nothing_is_served() {
    let bench = pool();
    tls::folder(&bench.path("pki"));
    let at = address(&bench.ok("volume serve tank/a --tcp 127.0.0.1:0 --tls-dir pki"));
    bench.ok("pool export tank");
    fs::remove_file(bench.path("pki/server-key.pem")).unwrap();
    bench.ok("pool import tank");
    assert!(TcpStream::connect(at).is_err());
    let status = bench.ok_or_found("status tank");
    assert!(status.contains("tank/a is not served") && status.contains("server-key.pem"), "{status}");
}

#[test]
fn other_machines_need_tls_or_a_word() {
    let bench = pool();
    let [certified, without] = tls::folder(&bench.path("pki"));
    let said = bench.fails("volume serve tank/a --tcp 0.0.0.0:0", INVALID);
    assert!(said.contains("not a loopback address") && said.contains("--insecure"), "{said}");
    let said = bench.ok("volume serve tank/a --tcp 0.0.0.0:0 --insecure");
    let mut at = address(&said);
    assert!(at.ip().is_unspecified());
    at.set_ip([127, 0, 0, 1].into());
    assert_eq!(connect(at, "tank/a").unwrap().read(0, 1).unwrap(), [0]);
    let mut at = address(&bench.ok("volume serve tank/b --tcp 0.0.0.0:0 --tls-dir pki"));
    at.set_ip([127, 0, 0, 1].into());
    for config in [certified, without] {
        assert_eq!(Secure::connect(at, "", &config).unwrap().read(0, 1), [0]);
    }
}

#[test]
fn a_key_that_others_can_read_is_told_of() {
    let bench = pool();
    tls::folder(&bench.path("pki"));
    fs::set_permissions(bench.path("pki/server-key.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    let output = bench.run("volume serve tank/a --tcp 127.0.0.1:0 --tls-dir pki");
    assert!(output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("warning") && said.contains("server-key.pem has mode 644"), "{said}");
    let status = bench.ok_or_found("status tank");
    assert!(status.contains("server-key.pem has mode 644"), "{status}");
}

#[test]
fn up_serves_through_tls() {
    let bench = crate::support::Bench::new();
    let [certified, _] = tls::folder(&bench.path("pki"));
    let up = bench.up("data --size 64M --tcp 127.0.0.1:0 --tls-dir pki --tls-verify-peer");
    let line = up.said.lines().find(|line| line.starts_with("address")).unwrap();
    let at = address(line.split_whitespace().last().unwrap());
    let refused = connect(at, "data/volume").map(drop);
    assert!(matches!(refused, Err(ClientError::Refused { code: reply::ERR_TLS_REQD, .. })), "{refused:?}");
    Secure::connect(at, "data/volume", &certified).unwrap().write(0, b"both");
    // The socket is its user's.
    assert_eq!(bench.client("data/volume.sock", "data/volume").read(0, 4).unwrap(), b"both");
    assert!(up.said.contains("nbdinfo 'nbd+unix://"), "{}", up.said);
    drop(up);
    let said = bench.fails("up other --insecure --no-mount", INVALID);
    assert!(said.contains("--tcp"), "{said}");
    let said = bench.fails("up other --tcp 127.0.0.1:0 --tls-dir absent --no-mount", INVALID);
    assert!(said.contains("absent/server-cert.pem"), "{said}");
    assert!(!bench.path("other").exists(), "a failed up leaves nothing");
}

#[test]
fn certificates_are_read_again_and_connections_go_on() {
    let bench = pool();
    let [_, before] = tls::folder(&bench.path("pki"));
    let at = address(&bench.ok("volume serve tank/a --tcp 127.0.0.1:0 --tls-dir pki"));
    let mut old = Secure::connect(at, "tank/a", &before).unwrap();
    fs::rename(bench.path("pki"), bench.path("gone")).unwrap();
    let said = bench.fails("reload", INVALID);
    assert!(said.contains("keeps its certificates") && said.contains("server-cert.pem"), "{said}");
    assert_eq!(Secure::connect(at, "tank/a", &before).unwrap().read(0, 1), [0]);
    let [_, after] = tls::folder(&bench.path("pki"));
    assert!(Secure::connect(at, "tank/a", &after).is_err(), "they are read when somebody says so");
    assert!(bench.ok("reload tank").contains(&at.to_string()));
    old.write(0, b"goes on");
    assert_eq!(old.read(0, 7), b"goes on");
    assert!(Secure::connect(at, "tank/a", &before).is_err());
    assert_eq!(Secure::connect(at, "tank/a", &after).unwrap().read(0, 7), b"goes on");
    assert!(bench.ok("pool events tank").contains("read again"));
}

#[test]
fn a_cache_is_served_through_tls() {
    let (bench, disk) = (Bench::new(), tempfile::tempdir().unwrap());
    fs::create_dir(bench.path("run")).unwrap();
    let origin = disk.path().join("origin");
    fs::File::create(&origin).unwrap().set_len(24 << 20).unwrap();
    bench.ok(&format!("cache create --pm pm --size 16M --origin {}", origin.display()));
    let said = bench.fails("cache serve pm --tcp 0.0.0.0:0", INVALID);
    assert!(said.contains("not a loopback address"), "{said}");
    let [certified, without] = tls::folder(&bench.path("pki"));
    let line = "cache serve pm --tcp 127.0.0.1:0 --tls-dir pki --tls-verify-peer";
    let mut child = bench.command(line).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        said.push_str(&line.unwrap());
        if said.contains("Ctrl-C") {
            break;
        }
    }
    let uri = said.split_whitespace().find(|word| word.starts_with("nbds://")).unwrap_or_default().to_owned();
    let at = address(&format!("{uri}\n"));
    assert!(connect(at, "origin").is_err());
    assert!(Secure::connect(at, "origin", &without).is_err());
    let mut client = Secure::connect(at, "origin", &certified).unwrap();
    // Whole sectors.
    client.write(4096, &[7; 512]);
    fs::rename(bench.path("pki"), bench.path("gone")).unwrap();
    let said = bench.fails("cache reload pm", INVALID);
    assert!(said.contains("the certificates stay as they were"), "{said}");
    let [after, _] = tls::folder(&bench.path("pki"));
    bench.ok("cache reload pm");
    assert_eq!(client.read(4096, 512), [7; 512]);
    assert!(Secure::connect(at, "origin", &certified).is_err());
    assert_eq!(Secure::connect(at, "origin", &after).unwrap().read(4096, 512), [7; 512]);
    drop(client);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(bench.fails("cache reload pm", INVALID).contains("no process serves"));
}
