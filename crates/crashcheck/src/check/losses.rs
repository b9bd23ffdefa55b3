//! What a crash image has lost, kept without the image.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::generate::Contents;
use crate::image::Image;

pub(super) const LINE_BYTES: usize = 64;
pub(super) const BLOCK_BYTES: usize = 512;

/// Most bytes that all of a run hold together.
const HELD_MAX_BYTES: usize = 64 << 20;

/// How much of them there is in a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Held(Arc<AtomicUsize>);

/// The lines of PM and blocks of disks in which an image differs from that with everything that was pending.
#[derive(Debug)]
pub struct Losses {
    /// Which image, where, and what it has there.
    parts: Vec<(Medium, u64, Box<[u8]>)>,
    bytes: usize,
    held: Held,
}

#[derive(Debug, Clone, Copy)]
enum Medium {
    Memory,
    Disk(usize),
}

impl Drop for Losses {
    fn drop(&mut self) {
        self.held.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Of each medium, the ranges in which two contents differ.
fn ranges(everything: &Contents, image: &Contents) -> Vec<(Medium, std::ops::Range<u64>)> {
    let lines = everything.memory.differences(&image.memory, LINE_BYTES);
    let lines = lines.into_iter().map(|range| (Medium::Memory, range));
    let disks = everything.disks.iter().zip(&image.disks).enumerate();
    let blocks = disks.flat_map(|(disk, (all, image))| {
        all.differences(image, BLOCK_BYTES).into_iter().map(move |range| (Medium::Disk(disk), range))
    });
    lines.chain(blocks).collect()
}

/// How many bytes of lines and blocks an image lacks.
pub(super) fn bytes_lost(everything: &Contents, image: &Contents) -> u64 {
    ranges(everything, image).into_iter().map(|(_, range)| range.end - range.start).sum()
}

impl Losses {
    /// What `image` lacks of `everything`; none if too much is held already.
    pub(super) fn of(everything: &Contents, image: &Contents, held: &Held) -> Option<Losses> {
        let mut losses = Losses { parts: Vec::new(), bytes: 0, held: held.clone() };
        for (medium, range) in ranges(everything, image) {
            let from = of(image, medium);
            let len = (range.end.min(from.len_bytes()) - range.start) as usize;
            // The vector's own part counts as well.
            let bytes = len + 48;
            losses.bytes += bytes;
            if held.0.fetch_add(bytes, Ordering::Relaxed) + bytes > HELD_MAX_BYTES {
                return None;
            }
            let mut data = vec![0; len].into_boxed_slice();
            from.read(range.start, &mut data);
            losses.parts.push((medium, range.start, data));
        }
        Some(losses)
    }

    /// Makes the image again, of the one with everything.
    pub fn apply(&self, contents: &mut Contents) {
        for (medium, offset, data) in &self.parts {
            match *medium {
                Medium::Memory => contents.memory.write(*offset, data),
                Medium::Disk(disk) => contents.disks[disk].write(*offset, data),
            }
        }
    }
}

fn of(contents: &Contents, medium: Medium) -> &Image {
    match medium {
        Medium::Memory => &contents.memory,
        Medium::Disk(disk) => &contents.disks[disk],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(memory: &[(u64, u8)], disk: &[(u64, u8)], len_bytes: u64) -> Contents {
        let image = |bytes: &[(u64, u8)], len_bytes| {
            let mut image = Image::zeroed(len_bytes);
            bytes.iter().for_each(|(offset, byte)| image.write(*offset, &[*byte]));
            image
        };
        Contents { memory: image(memory, len_bytes), disks: vec![image(disk, 4096)] }
    }

    #[test]
    fn an_image_is_made_again_of_what_it_lacks() {
        let held = Held::default();
        // The last line is cut off by the end of the image.
        let everything = contents(&[(0, 1), (70, 2), (130, 3)], &[(600, 5)], 160);
        let image = contents(&[(70, 2)], &[(1024, 7)], 160);
        let losses = Losses::of(&everything, &image, &held).unwrap();
        assert_eq!(bytes_lost(&everything, &image), 64 + 64 + 1024);
        let mut again = everything.clone();
        losses.apply(&mut again);
        assert!(again.hash() == image.hash() && again.hash() != everything.hash());
        assert!(held.0.load(Ordering::Relaxed) > 1024);
        drop(losses);
        assert_eq!(held.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn no_more_is_held_than_may_be() {
        let held = Held::default();
        let len_bytes = 24 << 20;
        let everything = contents(&[], &[], len_bytes);
        let mut image = everything.clone();
        image.memory.write(0, &vec![1; len_bytes as usize]);
        let kept: Vec<_> = (0..4).map(|_| Losses::of(&everything, &image, &held)).collect();
        let is_kept: Vec<_> = kept.iter().map(Option::is_some).collect();
        assert_eq!(is_kept, [true, true, false, false]);
        drop(kept);
        assert_eq!(held.0.load(Ordering::Relaxed), 0);
        assert!(Losses::of(&everything, &image, &held).is_some());
    }
}
