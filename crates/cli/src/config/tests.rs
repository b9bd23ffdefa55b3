//! Files that are right, and all that can be wrong in one.

use std::time::Duration;

use fastness_daemon::{AccessRequest, Address};

use super::plan::read;
use super::{Config, EXAMPLE};

fn right(text: &str) -> Config {
    read(text).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"))
}

#[test]
fn the_example_is_right_as_it_is_and_with_each_key() {
    assert!(right(EXAMPLE).pools.is_empty());
    let config = right(&EXAMPLE.replace("#k ", ""));
    let [pool] = &config.pools[..] else { panic!("{config:?}") };
    assert_eq!((pool.volumes.len(), pool.mounts.len(), pool.devices.len()), (4, 1, 2));
    assert_eq!(config.metrics, Some("127.0.0.1:9749".parse().unwrap()));
    // The defaults that it shows are those that are used.
    let defaults = &right("[pools.tank]").pools[0];
    assert_eq!(format!("{:?}", pool.bounds), format!("{:?}", defaults.bounds));
    assert!(pool.restores && defaults.restores);
}

#[test]
fn a_file_becomes_a_plan() {
    let config = right(
        r#"
        metrics.listen = "[::1]:80"
        [import]
        all = true
        [pools.tank]
        devices = ["/a", "rbd:pool/image"]
        dirty-max = 33554432
        txg-timeout = 0.5
        restore = false
        [[volumes]]
        name = "tank/a"
        [[volumes]]
        name = "tank/a"
        tcp = 10809
        read-only = true
        [[mounts]]
        name = "tank/b"
        path = "/b"
        options = ["ro", "noexec"]
        "#,
    );
    assert!(config.imports_all && config.metrics == Some("[::1]:80".parse().unwrap()));
    let pool = &config.pools[0];
    assert_eq!(pool.devices, ["/a", "rbd:pool/image"].map(std::path::PathBuf::from));
    assert_eq!((pool.bounds.dirty_max, pool.bounds.txg_timeout), (32 << 20, Duration::from_millis(500)));
    assert!(!pool.restores);
    assert_eq!(pool.volumes[0].address, None);
    assert_eq!(pool.volumes[1].address, Some(Address::Tcp("127.0.0.1:10809".to_owned())));
    assert!(pool.volumes[1].is_read_only && !pool.volumes[0].is_read_only);
    let options = pool.mounts[0].options;
    assert!(options.is_read_only && options.no_exec && !options.no_devices);
}

/// A mistake in the third line of each.
#[test]
fn each_mistake_is_said_with_its_line() {
    let pool = "# a\n[pools.tank]\n";
    let volume = "[pools.tank]\n[[volumes]]\n";
    let mount = "[pools.tank]\n[[mounts]]\n";
    for (before, wrong, after, said) in [
        (pool, "cach = 1", "", "cach is no key of [pools.tank]; there are devices, log,"),
        (pool, "cache = \"many\"", "", "cache is the text \"many\", and must be a size"),
        (pool, "cache = -1", "", "must be a size"),
        (pool, "cache = true", "", "cache is true, and must be a size"),
        (pool, "read-only = \"yes\"", "", "read-only is the text \"yes\", and must be true or false"),
        (pool, "txg-timeout = 0.05", "", "must be from 0.1 to 600 seconds"),
        (pool, "txg-timeout = nan", "", "must be from 0.1 to 600 seconds"),
        (pool, "wait = \"long\"", "", "must be a number of seconds"),
        (pool, "devices = \"/dev/sda\"", "", "devices must be a list of texts"),
        (pool, "devices = [1]", "", "devices must be a list of texts"),
        (pool, "devices = [\"disk\"]", "", "disk is no path from the root"),
        (pool, "log = [\"\"]", "", "is no path from the root"),
        (pool, "cache = 1 2", "", "expected"),
        (pool, "[pools.tank]", "", "duplicate key"),
        (pool, "[pools.\"a/b\"]", "", "a/b"),
        (pool, "[volumes]", "name = \"tank/a\"", "begin each with [[volumes]]"),
        (pool, "[listeners]", "", "listeners is no key; there are metrics, import, pools, volumes, mounts"),
        (volume, "name = \"tank\"", "", "tank is no full name"),
        (volume, "name = \"lake/a\"", "", "lake/a is of pool lake, which has no [pools.lake]"),
        (volume, "name = 7", "", "name is the number 7, and must be a text"),
        (volume, "name = \"\"", "", "name is empty"),
        (volume, "tcp = \"here\"", "name = \"tank/a\"", "tcp: here is neither a port nor"),
        (volume, "tcp = 70000", "name = \"tank/a\"", "tcp: 70000 is no port"),
        (volume, "socket = \"a.sock\"", "name = \"tank/a\"", "a.sock is no path from the root"),
        (volume, "tls-dir = \"pki\"", "name = \"tank/a\"", "pki is no path from the root"),
        (mount, "path = \"home\"", "name = \"tank/a\"", "home is no path from the root"),
        (mount, "options = [\"fast\"]", "name = \"tank/a\"\npath = \"/a\"", "fast is no option of a mount"),
    ] {
        let mistakes = read(&format!("{before}{wrong}\n{after}")).unwrap_err();
        assert_eq!(mistakes.len(), 1, "{wrong}: {mistakes:?}");
        assert_eq!(mistakes[0].line, 3, "{wrong}: {mistakes:?}");
        assert!(mistakes[0].text.contains(said), "{wrong}: {mistakes:?}");
    }
    let long = format!("socket = \"/{}\"", "x".repeat(200));
    let mistakes = read(&format!("{volume}name = \"tank/a\"\n{long}")).unwrap_err();
    assert!(mistakes[0].text.contains("cannot be a socket"), "{mistakes:?}");
}

#[test]
fn what_is_missing_or_taken_is_said_where_it_is() {
    let text = r#"
[metrics]
listen = 1
[pools.tank]
[[volumes]]
[[volumes]]
name = "tank/a"
tcp = 1
[[volumes]]
name = "tank/a"
socket = "/s"
[[volumes]]
name = "tank/b"
vhost-user = "/s"
[[volumes]]
name = "tank/b"
tcp = 2
socket = "/t"
[[mounts]]
name = "tank/c"
[[mounts]]
name = "tank/d"
path = "/d"
[[mounts]]
name = "tank/d"
path = "/d"
"#;
    let mistakes = read(text).unwrap_err();
    let lines: Vec<_> = mistakes.iter().map(|mistake| mistake.line).collect();
    let said: Vec<_> = mistakes.iter().map(|mistake| mistake.text.as_str()).collect();
    assert_eq!(lines, [5, 8, 14, 15, 19, 25, 26], "{said:#?}");
    for (said, part) in said.iter().zip([
        "this volume has no name",
        "127.0.0.1:1 is taken already, by [metrics]",
        "/s is taken already, by a volume",
        "one of socket, tcp and vhost-user",
        "this mount has no path",
        "tank/d is taken already, by a mount",
        "/d is taken already, by a mount",
    ]) {
        assert!(said.contains(part), "{said} has not {part}");
    }
}

#[test]
fn volumes_of_a_pool_share_an_address_if_their_clients_are_the_same() {
    let volume = |name: &str, more: &str| format!("[[volumes]]\nname = \"{name}\"\n{more}\n");
    let file = |volumes: &[String]| format!("[pools.tank]\n[pools.lake]\n{}", volumes.concat());
    let tls = "tcp = \"0.0.0.0:1\"\ntls-dir = \"/pki\"\ntls-verify-peer = true";
    let config =
        right(&file(&[volume("tank/a", tls), volume("tank/b", tls), volume("tank/c", "socket = \"/s\"")]));
    let volumes = &config.pools.iter().find(|pool| pool.name == "tank").unwrap().volumes;
    assert_eq!(volumes[0].address, volumes[1].address);
    let access =
        AccessRequest { tls_dir: Some("/pki".to_owned()), verifies_clients: true, is_insecure: false };
    assert_eq!((&volumes[0].access, &volumes[1].access), (&access, &access));
    assert_eq!(volumes[2].access, AccessRequest::default());
    for (volumes, said) in [
        (
            [volume("tank/a", tls), volume("lake/b", tls)],
            "0.0.0.0:1 is taken already, by a volume of another pool",
        ),
        ([volume("tank/a", tls), volume("tank/a", tls)], "0.0.0.0:1 is taken already, by a volume above"),
        ([volume("tank/a", tls), volume("tank/b", "tcp = \"0.0.0.0:1\"")], "with another tls-dir"),
        (
            [volume("tank/a", "socket = \"/s\""), volume("tank/b", "vhost-user = \"/s\"")],
            "/s is taken already",
        ),
        ([volume("tank/a", "tcp = 1"), volume("tank/b", "tcp = 2\ntls-verify-peer = true")], "tls-dir"),
        ([volume("tank/a", "tcp = 1"), volume("tank/b", &format!("{tls}\ninsecure = true"))], "without TLS"),
        ([volume("tank/a", ""), volume("tank/b", "vhost-user = \"/v\"\ninsecure = true")], "virtual machine"),
    ] {
        let mistakes = read(&file(&volumes)).unwrap_err();
        assert_eq!(mistakes.len(), 1, "{volumes:?}: {mistakes:?}");
        assert!(mistakes[0].text.contains(said), "{mistakes:?}");
    }
}

#[test]
fn all_mistakes_of_a_file_are_said_at_once() {
    let lines =
        |text: &str| -> Vec<_> { read(text).unwrap_err().iter().map(|mistake| mistake.line).collect() };
    assert_eq!(
        lines("[pools.tank]\ncach = 1\nwait = \"a\"\n[pool]\n[[volumes]]\nname = \"a/b\"\n"),
        [2, 3, 4, 6]
    );
    // Before these are right, nothing can be said about the others.
    assert_eq!(lines("[pools.tank\ncach = 1\n[pools.lake]\nwait =\n"), [1, 4]);
}

/// Whatever the file has, the answer is a plan or mistakes.
#[test]
fn no_bytes_make_it_panic() {
    let whole = EXAMPLE.replace("#k ", "");
    for end in (0..whole.len()).filter(|end| whole.is_char_boundary(*end)) {
        let _ = read(&whole[..end]);
    }
    for (at, _) in whole.char_indices().step_by(7) {
        for other in ["", "]", "\"", "=", "\u{0}", "é", "1e999", "99999999999999999999"] {
            let _ = read(&format!("{}{other}{}", &whole[..at], &whole[at + 1..]));
        }
    }
    let _ = read(&"[".repeat(100_000));
    let _ = read(&format!("a = {}", "[".repeat(100_000)));
}
