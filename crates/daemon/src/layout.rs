//! Requests for vdevs that look like a mistake: refused, unless they are forced.

use std::path::Path;

use fastness_base::ErrorKind;
use fastness_store::real;

use crate::protocol::{Failure, VdevRequest};

/// Words of a command line for vdevs: a pool of such a name is one whose name was forgotten.
const KEYWORDS: [&str; 11] =
    ["mirror", "log", "raidz", "raidz1", "raidz2", "raidz3", "draid", "spare", "cache", "special", "dedup"];

fn refuse(text: String) -> Failure {
    Failure::refuse(ErrorKind::Invalid, text)
}

/// Refuses a name for a new pool that is a keyword, unless `is_forced`.
///
/// # Errors
/// Kind Invalid.
pub fn check_pool_name(name: &str, is_forced: bool) -> Result<(), Failure> {
    if is_forced || !KEYWORDS.contains(&name) {
        return Ok(());
    }
    Err(refuse(format!(
        "`{name}` is a keyword for vdevs, not a name for a pool: put the pool's name before it (--force takes it as the name)"
    )))
}

/// Refuses new vdevs that look like a mistake: a device that is named twice, always; unless `is_forced`, a
/// mirror of one device, and a data device without a copy in a pool that has mirrors. `has_mirrors`: the pool
/// has a vdev for data that is a mirror already.
///
/// # Errors
/// Kind Invalid.
pub fn check_layout(vdevs: &[VdevRequest], has_mirrors: bool, is_forced: bool) -> Result<(), Failure> {
    let mut seen = Vec::new();
    for path in vdevs.iter().flat_map(|vdev| &vdev.devices) {
        let device = real(Path::new(path));
        if seen.contains(&device) {
            return Err(refuse(format!("{path} is named twice; a device is in one place of a pool")));
        }
        seen.push(device);
    }
    if is_forced {
        return Ok(());
    }
    if let Some(vdev) = vdevs.iter().find(|vdev| vdev.is_mirror && vdev.devices.len() == 1) {
        return Err(refuse(format!(
            "a mirror of {} alone has one copy only: name another device for it (--force accepts one side, and \
             `fastness pool attach` adds the other)",
            vdev.devices[0]
        )));
    }
    let data = || vdevs.iter().filter(|vdev| !vdev.is_log);
    let has_mirrors = has_mirrors || data().any(|vdev| vdev.devices.len() > 1);
    match data().find(|vdev| has_mirrors && vdev.devices.len() == 1) {
        Some(vdev) => Err(refuse(format!(
            "the pool has mirrors, and {0} would be a vdev without a copy: if {0} fails, the whole pool is lost. Add \
             `mirror {0} OTHER`, or attach it to a mirror with `fastness pool attach` (--force adds it all the same; it \
             cannot be removed again)",
            vdev.devices[0]
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vdev(is_log: bool, is_mirror: bool, devices: &[&str]) -> VdevRequest {
        VdevRequest { is_log, is_mirror, devices: devices.iter().map(|path| (*path).to_owned()).collect() }
    }

    #[test]
    fn what_looks_like_a_mistake_is_refused_unless_it_is_forced() {
        let plain = vdev(false, false, &["/a"]);
        let (single, pair) = (vdev(false, true, &["/a"]), vdev(false, true, &["/c", "/d"]));
        let log = vdev(true, false, &["/l"]);
        let table: [(&[VdevRequest], bool, bool); 9] = [
            (std::slice::from_ref(&plain), false, true),
            (std::slice::from_ref(&plain), true, false),
            (std::slice::from_ref(&single), false, false),
            (&[vdev(true, true, &["/l"])], false, false),
            (std::slice::from_ref(&pair), false, true),
            (std::slice::from_ref(&pair), true, true),
            (&[plain.clone(), pair.clone()], false, false),
            (&[pair.clone(), log.clone()], false, true),
            (&[log], true, true),
        ];
        for (vdevs, has_mirrors, is_accepted) in table {
            assert_eq!(check_layout(vdevs, has_mirrors, false).is_ok(), is_accepted, "{vdevs:?}");
            assert!(check_layout(vdevs, has_mirrors, true).is_ok());
        }
        let twice = [vdev(false, true, &["/tmp/../a", "/a"])];
        assert!(check_layout(&twice, false, true).is_err() || real(Path::new("/a")) == Path::new("/a"));
        assert!(check_layout(&[vdev(false, true, &["/a", "/a"])], false, true).is_err());
        for name in KEYWORDS {
            assert!(check_pool_name(name, false).is_err() && check_pool_name(name, true).is_ok());
        }
        assert!(check_pool_name("tank", false).is_ok());
    }
}
