//! Crash images as files.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::check::write_files;
use crate::error::{CheckError, Result};
use crate::generate::{Contents, Layout};
use crate::image::ImageHash;

/// Writes images into folders of a folder, each with its hash as the name: `pm0`, `pm1`, ... and `disk0`, ...
/// Where the file system shares blocks between files, images take the room of what they differ in; elsewhere
/// zeroes take none.
pub struct Saver<'a> {
    layout: &'a Layout,
    folder: &'a Path,
    /// The image that the others share blocks with, and where it is.
    first: Option<(Contents, PathBuf)>,
}

impl<'a> Saver<'a> {
    /// For an empty folder.
    pub fn new(layout: &'a Layout, folder: &'a Path) -> Saver<'a> {
        Saver { layout, folder, first: None }
    }

    /// Writes an image, unless it is there.
    ///
    /// # Errors
    /// Those of the files.
    pub fn save(&mut self, contents: &Contents, hash: &ImageHash) -> Result<()> {
        let dir = self.folder.join(hash.to_string());
        match std::fs::create_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            made => made.map_err(CheckError::file("make", &dir))?,
        }
        if !self.share(contents, &dir).map_err(CheckError::file("write", &dir))? {
            write_files(self.layout, contents, &dir)?;
        }
        self.first.get_or_insert_with(|| (contents.clone(), dir));
        Ok(())
    }

    /// False where the file system cannot share, and for the first image.
    fn share(&self, contents: &Contents, dir: &Path) -> io::Result<bool> {
        let Some((first, first_dir)) = &self.first else { return Ok(false) };
        let regions = self.layout.parts().iter().enumerate().map(|(index, part)| {
            let images = (&first.memory, &contents.memory);
            (format!("pm{index}"), images, part.offset, part.region.len_bytes)
        });
        let disks = first.disks.iter().zip(&contents.disks).enumerate();
        let disks = disks.map(|(index, (one, two))| (format!("disk{index}"), (one, two), 0, one.len_bytes()));
        for (name, (one, two), start, len_bytes) in regions.chain(disks) {
            let source = File::open(first_dir.join(&name))?;
            let file = File::create(dir.join(&name))?;
            if rustix::fs::ioctl_ficlone(&file, &source).is_err() {
                return Ok(false);
            }
            two.write_differences(one, &file, start, len_bytes)?;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use fastness_crashcheck_trace::Reader;
    use fastness_pm_model::{Op, Trace};

    use super::*;
    use crate::generate::collect::CrashImages;
    use crate::generate::{Options, generate};
    use crate::trace::record;

    #[test]
    fn images_are_saved_under_their_hashes() {
        let ops = vec![Op::store(0, [1; 8]), Op::store(4096, [2; 100]), Op::sfence()];
        let file = record(&Trace { initial: vec![7; 10_000 / 64 * 64], ops }, "pm", Vec::new()).unwrap();
        let mut reader = Reader::new(&file[..]).unwrap();
        let layout = Layout::of(reader.header()).unwrap();
        let mut images = CrashImages::default();
        generate(&mut reader, &Options::default(), None, &mut images).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut saver = Saver::new(&layout, dir.path());
        for image in &images.images {
            saver.save(&image.contents, &image.hash).unwrap();
        }
        assert!(images.images.len() > 2);
        for image in &images.images {
            let mut bytes = vec![0; 10_000 / 64 * 64];
            image.contents.memory.read(0, &mut bytes);
            assert!(bytes == std::fs::read(dir.path().join(image.hash.to_string()).join("pm0")).unwrap());
        }
        saver.save(&images.images[0].contents, &images.images[0].hash).unwrap();
        let gone = dir.path().join("gone");
        let error = Saver::new(&layout, &gone).save(&images.images[0].contents, &images.images[0].hash);
        let error = error.unwrap_err();
        assert!(error.to_string().starts_with("cannot make "), "{error}");
    }
}
