//! Vdevs on a command line: `a b mirror c d log mirror e f`.

use fastness_daemon::VdevRequest;

use crate::error::{Result, refuse};

/// The same path for a process with another working directory.
pub(super) fn absolute(path: &str) -> Result<String> {
    let absolute = fastness_daemon::absolute(path.as_ref())?;
    absolute.into_os_string().into_string().map_err(|_| refuse(format!("{path} is not valid UTF-8")))
}

/// The words after the pool's name, as zpool reads them: `mirror` makes one vdev of the devices after it, up
/// to the next keyword; the vdevs after `log` are for logs.
pub(super) fn parse(words: &[String]) -> Result<Vec<VdevRequest>> {
    let mut vdevs = Vec::<VdevRequest>::new();
    let (mut is_log, mut in_mirror) = (false, false);
    for word in words {
        match word.as_str() {
            "log" => (is_log, in_mirror) = (true, false),
            "mirror" => {
                in_mirror = true;
                vdevs.push(VdevRequest { is_log, is_mirror: true, devices: Vec::new() });
            }
            "raidz" | "raidz1" | "raidz2" | "raidz3" | "spare" | "cache" | "special" | "dedup" => {
                return Err(refuse(format!(
                    "{word} is not supported: only single devices, mirrors and logs"
                )));
            }
            path => match vdevs.last_mut().filter(|_| in_mirror) {
                Some(mirror) => mirror.devices.push(absolute(path)?),
                None => vdevs.push(VdevRequest { is_log, is_mirror: false, devices: vec![absolute(path)?] }),
            },
        }
    }
    if vdevs.iter().any(|vdev| vdev.devices.is_empty()) || is_log && !vdevs.iter().any(|vdev| vdev.is_log) {
        return Err(refuse("a device is missing after `mirror` or `log`"));
    }
    Ok(vdevs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Option<Vec<(bool, usize)>> {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        let vdevs = parse(&words).ok()?;
        Some(vdevs.iter().map(|vdev| (vdev.is_log, vdev.devices.len())).collect())
    }

    #[test]
    fn words_are_grouped_as_zpool_does() {
        assert_eq!(parsed("/a /b"), Some(vec![(false, 1), (false, 1)]));
        assert_eq!(parsed("mirror /a /b mirror /c /d"), Some(vec![(false, 2), (false, 2)]));
        assert_eq!(parsed("mirror /a /b log /c"), Some(vec![(false, 2), (true, 1)]));
        assert_eq!(parsed("/a log mirror /c /d"), Some(vec![(false, 1), (true, 2)]));
        for wrong in ["mirror", "/a log", "/a mirror log /b", "raidz /a /b /c"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
