//! Reduces what a crash has lost to a part that is enough for the same state.
//!
//! An image that was drawn at random lacks many lines, of which one or two matter. So recoveries are tried
//! with less lost: images that have some of the lost lines and blocks, in halves, quarters and so on, until
//! none can be left out or enough were tried ([`minimal`]).

use fastness_crashcheck_fuzz::minimal;

use super::losses::{BLOCK_BYTES, LINE_BYTES};
use super::state::State;
use crate::Result;
use crate::generate::Contents;
use crate::image::Image;

/// How losses are reduced.
pub struct Shrink<'a> {
    /// Recovers what it is given; says whether that leads to a state.
    pub leads_to: &'a dyn Fn(&Contents, &State) -> Result<bool>,
    /// Most recoveries for one image.
    pub recoveries_max: usize,
}

/// An image that has lost less.
pub struct Shrunk {
    /// Its contents.
    pub contents: Contents,
    /// How many lines and blocks it lacks.
    pub lost: usize,
    /// How many the original image lacked.
    pub of: usize,
}

/// Something that an image has lost, or has in part: a line of PM, or a block of a disk.
#[derive(Debug, Clone, Copy)]
enum Loss {
    Line(u64),
    Block { disk: usize, offset: u64 },
}

impl Shrink<'_> {
    /// Of what `image` lacks of `everything`, a part that still leads to `state`. Mixes of the two are tried,
    /// by whole lines of PM and blocks of disks: where a crash cannot leave any such mix this is not for.
    ///
    /// # Errors
    /// Those of recoveries that cannot be run.
    pub fn run(&self, everything: &Contents, image: &Contents, state: &State) -> Result<Shrunk> {
        let all = losses(everything, image);
        let mix = |losses: &[Loss]| {
            let mut contents = everything.clone();
            losses.iter().for_each(|loss| loss.put(image, &mut contents));
            contents
        };
        let lost =
            minimal(all.clone(), self.recoveries_max, &mut |losses| (self.leads_to)(&mix(losses), state))?;
        Ok(Shrunk { contents: mix(&lost), lost: lost.len(), of: all.len() })
    }
}

fn losses(everything: &Contents, image: &Contents) -> Vec<Loss> {
    let lines = everything.memory.differences(&image.memory, LINE_BYTES);
    let lines = lines.into_iter().flat_map(|range| range.step_by(LINE_BYTES)).map(Loss::Line);
    let disks = everything.disks.iter().zip(&image.disks).enumerate();
    let blocks = disks.flat_map(|(disk, (all, image))| {
        let ranges = all.differences(image, BLOCK_BYTES).into_iter();
        ranges.flat_map(|range| range.step_by(BLOCK_BYTES)).map(move |offset| Loss::Block { disk, offset })
    });
    lines.chain(blocks).collect()
}

impl Loss {
    /// Makes `to` lack what `from` lacks here.
    fn put(self, from: &Contents, to: &mut Contents) {
        match self {
            Loss::Line(offset) => copy(&from.memory, &mut to.memory, offset, &mut [0; LINE_BYTES]),
            Loss::Block { disk, offset } => {
                copy(&from.disks[disk], &mut to.disks[disk], offset, &mut [0; BLOCK_BYTES]);
            }
        }
    }
}

fn copy(from: &Image, to: &mut Image, offset: u64, unit: &mut [u8]) {
    // The last one may be cut off by the end of the image.
    let len = unit.len().min(usize::try_from(from.len_bytes() - offset).unwrap_or(usize::MAX));
    from.read(offset, &mut unit[..len]);
    to.write(offset, &unit[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_mix_has_lost_the_image_has_lost() {
        let image = |bytes: &[(u64, u8)], len_bytes| {
            let mut image = Image::zeroed(len_bytes);
            bytes.iter().for_each(|(offset, byte)| image.write(*offset, &[*byte]));
            image
        };
        // The second region of PM begins in the middle of a line, and the last line is cut off.
        let everything = Contents {
            memory: image(&[(0, 1), (70, 2), (130, 3)], 160),
            disks: vec![image(&[(0, 4)], 1024), image(&[(600, 5), (1024, 6)], 2048)],
        };
        let lost =
            Contents { memory: image(&[(70, 2)], 160), disks: vec![image(&[], 1024), image(&[], 2048)] };
        let read = |image: &Image, offset| {
            let mut byte = [0];
            image.read(offset, &mut byte);
            byte[0]
        };
        // Wrong if the line at 128 is lost together with the block at 512 of the second disk.
        let recover = |contents: &Contents| {
            let is_wrong = read(&contents.memory, 130) == 0 && read(&contents.disks[1], 600) == 0;
            let text = vec![u8::from(is_wrong)];
            State { ending: crate::process::Ending::Code(0), text, write: None }
        };
        let wrong = recover(&lost);
        let leads_to = |contents: &Contents, state: &State| Ok(recover(contents) == *state);
        let shrink = Shrink { leads_to: &leads_to, recoveries_max: 100 };
        let shrunk = shrink.run(&everything, &lost, &wrong).unwrap();
        assert_eq!((shrunk.lost, shrunk.of), (2, 5));
        let [memory, disk, other] =
            [&shrunk.contents.memory, &shrunk.contents.disks[0], &shrunk.contents.disks[1]];
        assert_eq!([read(memory, 0), read(memory, 70), read(memory, 130)], [1, 2, 0]);
        assert_eq!([read(disk, 0), read(other, 600), read(other, 1024)], [4, 0, 6]);
    }
}
