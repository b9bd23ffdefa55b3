//! Crash images as files.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::check::write_files;
use crate::error::{CheckError, Result};
use crate::generate::{CrashImages, Layout};

/// Writes each image into a folder of `folder` with its hash as the name: `pm0`, `pm1`, ... and `disk0`, ...
/// Where the file system shares blocks between files, images take the room of what they differ in; elsewhere
/// zeroes take none.
///
/// # Errors
/// Those of the files.
pub fn save(images: &CrashImages, layout: &Layout, folder: &Path) -> Result<()> {
    let mut first: Option<Saved<'_>> = None;
    for image in &images.images {
        let dir = folder.join(image.hash.to_string());
        std::fs::create_dir(&dir).map_err(CheckError::file("make", &dir))?;
        let shared = match &first {
            Some(first) => first.share(image, layout, &dir),
            None => Ok(false),
        };
        if !shared.map_err(CheckError::file("write", &dir))? {
            write_files(layout, &image.contents, &dir)?;
        }
        first.get_or_insert(Saved { image, dir });
    }
    Ok(())
}

/// The image that the others share blocks with.
struct Saved<'a> {
    image: &'a crate::generate::CrashImage,
    dir: std::path::PathBuf,
}

impl Saved<'_> {
    /// False where the file system cannot share.
    fn share(&self, image: &crate::generate::CrashImage, layout: &Layout, dir: &Path) -> io::Result<bool> {
        let regions = layout.parts().iter().enumerate().map(|(index, part)| {
            let images = (&self.image.contents.memory, &image.contents.memory);
            (format!("pm{index}"), images, part.offset, part.region.len_bytes)
        });
        let disks = self.image.contents.disks.iter().zip(&image.contents.disks).enumerate();
        let disks = disks.map(|(index, (one, two))| (format!("disk{index}"), (one, two), 0, one.len_bytes()));
        for (name, (one, two), start, len_bytes) in regions.chain(disks) {
            let source = File::open(self.dir.join(&name))?;
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
    use crate::generate::{Options, generate};
    use crate::trace::record;

    #[test]
    fn images_are_saved_under_their_hashes() {
        let ops = vec![Op::store(0, [1; 8]), Op::store(4096, [2; 100]), Op::sfence()];
        let file = record(&Trace { initial: vec![7; 10_000 / 64 * 64], ops }, "pm", Vec::new()).unwrap();
        let mut reader = Reader::new(&file[..]).unwrap();
        let layout = Layout::of(reader.header()).unwrap();
        let images = generate(&mut reader, &Options::default(), None).unwrap();
        let dir = tempfile::tempdir().unwrap();
        save(&images, &layout, dir.path()).unwrap();
        assert!(images.images.len() > 2);
        for image in &images.images {
            let mut bytes = vec![0; 10_000 / 64 * 64];
            image.contents.memory.read(0, &mut bytes);
            assert!(bytes == std::fs::read(dir.path().join(image.hash.to_string()).join("pm0")).unwrap());
        }
        let error = save(&images, &layout, dir.path()).unwrap_err();
        assert!(error.to_string().starts_with("cannot make "), "{error}");
    }
}
