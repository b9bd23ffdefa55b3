//! What the package is made of: units that start what there is, and let others see what is mounted.

use std::fs;
use std::path::{Path, PathBuf};

use support::Bench;

mod support;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn units() -> Vec<(String, String)> {
    let folder = root().join("packaging/systemd");
    let mut units: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "service"))
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    units.sort();
    units
}

/// The value of a setting, which is there once.
fn value<'a>(unit: &'a str, setting: &str) -> &'a str {
    let mut values = unit.lines().filter_map(|line| line.strip_prefix(setting)?.strip_prefix('='));
    let value = values.next().unwrap_or_else(|| panic!("no {setting}="));
    assert_eq!(values.next(), None, "{setting}= twice");
    value
}

#[test]
fn units_start_commands_that_there_are() {
    let bench = Bench::new();
    // Wrong, so that nothing is started: what is said shows how far it came.
    fs::write(bench.path("config.toml"), "[pools.tank]\nwrong = 1\n").unwrap();
    let units = units();
    let names: Vec<_> = units.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["fastness.service", "fastness@.service"]);
    for (name, unit) in &units {
        let line = value(unit, "ExecStart").strip_prefix("/usr/bin/fastness ").unwrap();
        let line =
            line.replace("/etc/fastness/config.toml", &bench.text("config.toml")).replace("%i", "tank");
        let said = bench.fails(&line, 3);
        assert!(said.contains("config.toml:2: wrong is no key of [pools.tank]"), "{name}: {said}");
        assert_eq!(line.ends_with("--pool tank"), name.contains('@'), "{name}");
    }
}

#[test]
fn units_wait_for_readiness_and_are_watched_and_ended_in_order() {
    for (name, unit) in units() {
        assert_eq!(value(&unit, "Type"), "notify", "{name}");
        assert_eq!(value(&unit, "Restart"), "on-failure", "{name}");
        assert!(value(&unit, "WatchdogSec").parse::<u32>().unwrap() >= 60, "{name}");
        assert!(value(&unit, "TimeoutStopSec").parse::<u32>().unwrap() >= 60, "{name}");
        // Only the service itself gets the signal, not what it has started.
        assert_eq!(value(&unit, "KillMode"), "mixed", "{name}");
        assert!(unit.lines().all(|line| !line.starts_with("KillSignal=")), "{name}: SIGTERM exports");
        assert_eq!(value(&unit, "RuntimeDirectoryPreserve"), "yes", "{name}: others have sockets there");
    }
}

/// Each of these gives a service a mount namespace of its own. Source: systemd.exec(5).
#[test]
fn units_leave_mounts_where_others_see_them() {
    let with_a_namespace = [
        "ProtectSystem",
        "ProtectHome",
        "ProtectProc",
        "ProcSubset",
        "ProtectKernelTunables",
        "ProtectKernelModules",
        "ProtectKernelLogs",
        "ProtectControlGroups",
        "PrivateTmp",
        "PrivateDevices",
        "PrivateMounts",
        "PrivateUsers",
        "PrivateIPC",
        "ReadWritePaths",
        "ReadOnlyPaths",
        "InaccessiblePaths",
        "ExecPaths",
        "NoExecPaths",
        "TemporaryFileSystem",
        "BindPaths",
        "BindReadOnlyPaths",
        "RootDirectory",
        "RootImage",
        "MountAPIVFS",
        "MountFlags",
        "DynamicUser",
        "LogNamespace",
        // These close the devices that pools are on.
        "DevicePolicy",
        "DeviceAllow",
        "ProtectClock",
    ];
    for (name, unit) in units() {
        for line in unit.lines().filter(|line| !line.starts_with('#')) {
            let setting = line.split('=').next().unwrap();
            assert!(!with_a_namespace.contains(&setting), "{name}: {line}");
        }
    }
}

/// What a package is made of: where each file comes from, and where it goes.
fn assets(of_crate: &str, deb: &toml::Value) -> Vec<String> {
    let assets = deb["assets"].as_array().unwrap();
    let from_here = assets.iter().map(|asset| asset[0].as_str().unwrap());
    for source in from_here.filter(|source| !source.starts_with("target/")) {
        let path = root().join("crates").join(of_crate).join(source.trim_end_matches("/*"));
        assert!(if source.ends_with("/*") { path.is_dir() } else { path.is_file() }, "{source}");
    }
    assets.iter().map(|asset| asset[1].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_the_packages_take_from_here_is_there() {
    let deb = |of_crate: &str| {
        let manifest = fs::read_to_string(root().join("crates").join(of_crate).join("Cargo.toml")).unwrap();
        manifest.parse::<toml::Table>().unwrap()["package"]["metadata"]["deb"].clone()
    };
    let program = deb("cli");
    let installed = assets("cli", &program);
    for file in ["usr/bin/", "usr/lib/fastness/", "etc/fastness/config.toml", "usr/sbin/mount.fastness"] {
        assert!(installed.iter().any(|path| path == file), "{file}");
    }
    let is_started = program["systemd-units"][0]["start"].as_bool();
    assert_eq!(is_started, Some(false), "nothing runs before it is configured");
    let tester = assets("crashcheck-cli", &deb("crashcheck-cli"));
    for file in ["usr/bin/", "usr/lib/fastness/", "usr/include/", "usr/lib/fastness/scripts/"] {
        assert!(tester.iter().any(|path| path == file), "{file}");
    }
}
