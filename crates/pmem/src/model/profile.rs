//! Calibrated figures of devices.
//!
//! What the sources say in words or tables is marked *said*; the rest is interpolated between it, or chosen
//! so that what they say comes out. Figures that exist as pictures only are in none of them.

/// Bytes that the device reads and writes at a time.
pub const LINE_OF_DEVICE_BYTES: usize = 256;

/// Bandwidth with a number of writers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Threads that write at the same time.
    pub writers: u32,
    /// What they reach together.
    pub gib_per_s: f64,
}

const fn at(writers: u32, gib_per_s: f64) -> Point {
    Point { writers, gib_per_s }
}

/// Where a writer runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// On the NUMA node of the device.
    Local,
    /// On another one.
    Remote,
}

/// How fast a device is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceProfile {
    /// What it is.
    pub name: &'static str,
    /// Bandwidth of writers on the device's node: rising numbers of writers; beyond the last, the same.
    pub local: &'static [Point],
    /// The same, of writers on another node.
    pub remote: &'static [Point],
    /// What a 256-byte line costs beyond its bytes if it is written in part.
    pub partial_line_bytes: u64,
    /// Bandwidth of all transfers of a DMA engine together.
    pub dma_gib_per_s: f64,
    /// Time until the first bytes of a read come.
    pub read_ns: u64,
    /// Bandwidth of one reader, from then on.
    pub read_gib_per_s: f64,
    /// The most writers that still reach nearly the full bandwidth: the limit that the sources recommend.
    pub writers_max: u32,
}

/// One Optane module, not interleaved.
///
/// Local: one thread reaches 1.9 GiB/s, more than four lose (*said*, dissertation 3.4.1); ten or more reach
/// 1 GB/s (*said*, thesis 5.12). Between: 400,000 entries of 4.5 KiB a second while 4.6 writers are in PM on
/// average (11.6 us each, at 12 jobs and 8 slots), 237,000 with all 18 jobs (*said*, thesis 7.3.4). Remote: a
/// limit of three reaches 0.68 of local, six threads reach 77 MiB/s (*said*, dissertation 5.3.1 and 4.3.1).
pub const ONE_MODULE: DeviceProfile = DeviceProfile {
    name: "one Optane module",
    local: &[at(1, 1.9), at(4, 1.9), at(5, 1.72), at(7, 1.4), at(10, 1.0), at(18, 0.95)],
    remote: &[at(1, 1.0), at(2, 1.3), at(3, 1.3), at(4, 0.6), at(6, 0.075)],
    partial_line_bytes: PARTIAL_LINE_BYTES,
    dma_gib_per_s: 0.77,
    read_ns: READ_NS,
    read_gib_per_s: READ_GIB_PER_S,
    writers_max: 3,
};

/// Four interleaved Optane modules.
///
/// Local: 4.3 GiB/s with one thread, 7.5 with two, constant from ten threads on (*said*, dissertation 3.3),
/// at which the medium writes 1.4 bytes for each byte (*said*, table 3.2): 7.5 / 1.4. Eight writers do not
/// lose much (*said*, 3.4). Remote: at most 4.4 GiB/s, at six threads; less than one writer's after nine;
/// 0.33 in the end (*said*, 3.6).
pub const FOUR_INTERLEAVED: DeviceProfile = DeviceProfile {
    name: "four interleaved Optane modules",
    local: &[at(1, 4.3), at(2, 7.5), at(4, 7.3), at(8, 6.9), at(10, 5.4)],
    remote: &[at(1, 1.2), at(6, 4.4), at(7, 4.3), at(9, 1.2), at(12, 0.33)],
    partial_line_bytes: PARTIAL_LINE_BYTES,
    // Of one module; an engine on four was not measured by the source.
    dma_gib_per_s: 4.0 * 0.77,
    read_ns: READ_NS,
    read_gib_per_s: 4.0 * READ_GIB_PER_S,
    writers_max: 4,
};

/// A random read (*said*, thesis 2.2, of Yang et al.; DRAM has 100 ns in the same place).
const READ_NS: u64 = 300;
/// Of one module, by as many readers as it takes (*said*, there); more modules, almost as many times that.
const READ_GIB_PER_S: f64 = 6.5;

/// With entries of 256 bytes, an alignment of 256 bytes writes 768 bytes in whole lines, one of 64 bytes 384
/// bytes, which are 2.5 pieces of lines on average; the former is faster by 17.4 % (*said*, dissertation
/// 3.5): (1.174 * 768 - 384) / 2.5. A lone piece of 64 bytes costs as much as a whole line.
const PARTIAL_LINE_BYTES: u64 = 207;

impl DeviceProfile {
    /// Bandwidth of that many writers together, in GiB/s.
    pub fn gib_per_s(&self, node: Node, writers: u32) -> f64 {
        let curve = match node {
            Node::Local => self.local,
            Node::Remote => self.remote,
        };
        let writers = f64::from(writers.max(1));
        let mut before = curve[0];
        for &point in curve {
            if f64::from(point.writers) >= writers {
                let width = f64::from(point.writers - before.writers);
                let part = if width > 0.0 { (writers - f64::from(before.writers)) / width } else { 0.0 };
                return before.gib_per_s + part.max(0.0) * (point.gib_per_s - before.gib_per_s);
            }
            before = point;
        }
        before.gib_per_s
    }

    /// What the device has to do for a write, in bytes of whole lines.
    pub fn work_bytes(&self, offset: u64, len_bytes: usize) -> u64 {
        let line = LINE_OF_DEVICE_BYTES as u64;
        let end = offset + len_bytes as u64;
        let (starts_inside, ends_inside) = (!offset.is_multiple_of(line), !end.is_multiple_of(line));
        let is_one_line = offset / line == end / line;
        let pieces = if is_one_line {
            u64::from(starts_inside || ends_inside)
        } else {
            u64::from(starts_inside) + u64::from(ends_inside)
        };
        len_bytes as u64 + pieces * self.partial_line_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the sources say.
    #[test]
    fn the_profiles_have_the_figures_of_their_sources() {
        let one = |node, writers| ONE_MODULE.gib_per_s(node, writers);
        let four = |node, writers| FOUR_INTERLEAVED.gib_per_s(node, writers);
        use Node::{Local, Remote};
        assert_eq!((one(Local, 1), one(Local, 4)), (1.9, 1.9), "a single thread suffices, four do not lose");
        assert!(one(Local, 5) < 1.9 && one(Local, 10) * 1.0737 < 1.1, "1 GB/s at ten");
        assert_eq!((four(Local, 1), four(Local, 2)), (4.3, 7.5));
        assert_eq!(four(Local, 10), four(Local, 18), "identical with more than ten");
        assert!((7.5 / four(Local, 16) - 1.4).abs() < 0.02, "40 % more writes of the medium");
        assert_eq!((four(Remote, 6), four(Remote, 18)), (4.4, 0.33));
        assert!(four(Remote, 10) < four(Remote, 1), "after nine, less than one");
        assert!((one(Remote, 3) / one(Local, 3) - 0.68).abs() < 0.01, "32 % less");
        assert!((one(Remote, 6) * 1024.0 - 77.0).abs() < 1.0);
        for profile in [ONE_MODULE, FOUR_INTERLEAVED] {
            let best = |node| (1..=18).map(|writers| profile.gib_per_s(node, writers)).fold(0.0, f64::max);
            assert!(profile.gib_per_s(Local, profile.writers_max) > 0.95 * best(Local), "{}", profile.name);
            assert!(
                (1..40)
                    .all(|writers| profile.gib_per_s(Local, writers) >= profile.gib_per_s(Remote, writers))
            );
        }
    }

    #[test]
    fn bandwidth_between_two_points_is_between_theirs() {
        assert_eq!(ONE_MODULE.gib_per_s(Node::Local, 0), 1.9);
        assert!((ONE_MODULE.gib_per_s(Node::Local, 6) - 1.56).abs() < 1e-9);
        assert_eq!(ONE_MODULE.gib_per_s(Node::Local, u32::MAX), 0.95);
    }

    #[test]
    fn pieces_of_lines_cost_a_read_modify_write() {
        let work = |offset, len| ONE_MODULE.work_bytes(offset, len);
        assert_eq!((work(0, 4096), work(256, 256), work(0, 0)), (4096, 256, 0));
        assert_eq!((work(0, 64), work(64, 64), work(192, 64)), (271, 271, 271), "one piece");
        assert_eq!((work(0, 320), work(64, 448)), (527, 655), "one piece at the end, one at the start");
        assert_eq!(work(64, 320), 320 + 2 * 207, "two");
        // Figure 3.7: entries of 256 bytes, aligned to 64 and to 256 bytes, over all places in a line.
        let small: u64 = (0..4).map(|at| work(64 + 320 * at, 320) + work(320 * at, 64)).sum();
        let large: u64 = 4 * (work(256, 512) + work(0, 256));
        assert!((small as f64 / large as f64 - 1.174).abs() < 0.01, "{small} {large}");
    }
}
