//! Folders of certificates, and where a server with TLS may listen.

mod support;

use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use fastness_nbd::{
    Access, BindError, CA_FILE, CERTIFICATE_FILE, Endpoint, KEY_FILE, Limits, MemoryExport, Server,
    SingleExport, Tls,
};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use support::tls::Authority;

/// The error of a folder in which something was changed, with its causes.
fn refusal(verifies_clients: bool, change: impl FnOnce(&Path)) -> String {
    let folder = tempfile::tempdir().unwrap();
    Authority::new().folder(folder.path());
    change(folder.path());
    let error = Tls::load(folder.path(), verifies_clients).expect_err("the folder is no good");
    let mut text = error.to_string().replace(&folder.path().display().to_string(), "DIR");
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

#[test]
fn folders_that_are_no_good() {
    let remove = |file: &'static str| move |folder: &Path| fs::remove_file(folder.join(file)).unwrap();
    let put = |file: &'static str, text: &'static str| {
        move |folder: &Path| fs::write(folder.join(file), text).unwrap()
    };
    assert!(
        refusal(false, remove(CERTIFICATE_FILE)).starts_with("cannot read DIR/server-cert.pem: No such file")
    );
    assert!(refusal(false, remove(KEY_FILE)).starts_with("cannot read DIR/server-key.pem: No such file"));
    assert!(refusal(true, remove(CA_FILE)).starts_with("cannot read DIR/ca-cert.pem: No such file"));
    assert_eq!(
        refusal(false, put(CERTIFICATE_FILE, "")),
        "DIR/server-cert.pem has no certificate in PEM format"
    );
    assert_eq!(refusal(false, put(KEY_FILE, "key")), "DIR/server-key.pem has no private key in PEM format");
    let cut = "-----BEGIN CERTIFICATE-----\nAAAA\n";
    assert!(refusal(false, put(CERTIFICATE_FILE, cut)).starts_with("DIR/server-cert.pem is damaged: "));
    let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let wrong = refusal(false, put(CERTIFICATE_FILE, nonsense));
    assert!(
        wrong.starts_with("DIR/server-cert.pem and server-key.pem beside it cannot be used: "),
        "{wrong}"
    );
    let wrong = refusal(true, put(CA_FILE, nonsense));
    assert!(wrong.starts_with("DIR/ca-cert.pem is no authority for clients' certificates: "), "{wrong}");
    let another = Authority::new().identity().key;
    let wrong = refusal(false, |folder| fs::write(folder.join(KEY_FILE), another).unwrap());
    assert!(wrong.contains("cannot be used: "), "a key of another certificate: {wrong}");
}

/// A pipe would keep the server waiting, and a file without an end would fill its memory.
#[test]
fn only_files_are_read() {
    let wrong = refusal(false, |folder| {
        fs::remove_file(folder.join(KEY_FILE)).unwrap();
        mknodat(CWD, folder.join(KEY_FILE), FileType::Fifo, Mode::RUSR, 0).unwrap();
    });
    assert_eq!(wrong, "DIR/server-key.pem is not a file of at most 1 MiB");
    let wrong = refusal(false, |folder| {
        let file = fs::File::create(folder.join(CERTIFICATE_FILE)).unwrap();
        file.set_len(1 << 40).unwrap();
    });
    assert_eq!(wrong, "DIR/server-cert.pem is not a file of at most 1 MiB");
}

#[test]
fn a_key_that_others_can_read_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    Authority::new().folder(folder.path());
    let key = folder.path().join(KEY_FILE);
    for (mode, is_told) in [(0o600, false), (0o400, false), (0o640, false), (0o644, true), (0o660, true)] {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        let tls = Tls::load(folder.path(), false).unwrap();
        assert_eq!(!tls.warnings().is_empty(), is_told, "{mode:o}: {:?}", tls.warnings());
    }
}

/// Without the authority's file clients are served, as long as they are not verified.
#[test]
fn the_authority_is_needed_only_to_verify() {
    let folder = tempfile::tempdir().unwrap();
    Authority::new().folder(folder.path());
    fs::remove_file(folder.path().join(CA_FILE)).unwrap();
    assert!(!Tls::load(folder.path(), false).unwrap().verifies_clients());
}

#[test]
fn other_machines_need_tls_or_a_word() {
    let everyone = Endpoint::Tcp("0.0.0.0:0".parse().unwrap());
    let bind = |access| {
        let exports = SingleExport::new("disk", Arc::new(MemoryExport::new(1 << 20)));
        Server::bind_with(&everyone, Arc::new(exports), Limits::default(), access)
    };
    assert!(matches!(bind(Access::default()), Err(BindError::NotLoopback { .. })));
    bind(Access { tls: None, insecure: true }).unwrap();
    bind(Access { tls: Some(Authority::new().tls(true)), insecure: false }).unwrap();
}

#[test]
fn files_are_read_again_and_what_is_no_good_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    Authority::new().folder(folder.path());
    let tls = Tls::load(folder.path(), false).unwrap();
    let clone = tls.clone();
    let key = fs::read(folder.path().join(KEY_FILE)).unwrap();
    fs::write(folder.path().join(KEY_FILE), "nothing").unwrap();
    fs::set_permissions(folder.path().join(KEY_FILE), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(tls.reload().is_err());
    assert!(clone.warnings().is_empty());
    fs::write(folder.path().join(KEY_FILE), key).unwrap();
    tls.reload().unwrap();
    assert!(!clone.warnings().is_empty(), "clones have what was read");
}
