//! `fastness crashcheck images`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use fastness_crashcheck::CheckError;
use fastness_crashcheck::generate::{
    Contents, KNOWN_IMAGES, Known, Layout, Part, Point, PointKind, Sink, generate, outline,
};
use fastness_crashcheck::save::Saver;
use fastness_crashcheck::trace::open_trace;
use fastness_terminal::Outcome;
use serde_json::json;

use crate::error::{Context, Result};
use crate::options::{ImageArgs, Subject};

pub(crate) const EXAMPLES: &str = "\
Examples:
  fastness crashcheck images run.trace                     how many there are, and where
  fastness crashcheck images run.trace -o images           write them: a folder each, and index.json
  fastness crashcheck images run.trace --per-point 16 --seed 7
A failure point is a moment just before something becomes certain. One that is not marked `all` has more images
than were taken; `cut` says that the bound has left some out that the heuristics wanted.";

/// Arguments of `crashcheck images`.
#[derive(Debug, Args)]
pub struct ImagesArgs {
    trace: PathBuf,
    /// Write the images into this folder, which must not exist yet
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    images: ImageArgs,
}

pub(crate) fn run(args: ImagesArgs, out: &mut dyn Write) -> Result<Outcome> {
    let options = args.images.config(Subject::Program).options(outline(&mut open_trace(&args.trace)?)?);
    let mut reader = open_trace(&args.trace)?;
    let layout = Layout::of(reader.header())?;
    let mut indexes: Vec<Box<dyn Write + '_>> = Vec::new();
    let mut saver = None;
    if let Some(folder) = &args.output {
        std::fs::create_dir(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let index = folder.join("index.json");
        let file = File::create(&index).with_context(|| format!("cannot write {}", index.display()))?;
        indexes.push(Box::new(BufWriter::new(file)));
        saver = Some(Saver::new(&layout, folder));
    }
    let mut table: Option<Box<dyn Write + '_>> = None;
    match args.json {
        true => indexes.push(Box::new(out)),
        false => table = Some(Box::new(out)),
    }
    let known = Known::new(KNOWN_IMAGES);
    let mut listing = Listing { known, saver, indexes, table, points: 0, images: 0, of_point: 0 };
    listing.start()?;
    generate(&mut reader, &options, None, &mut listing)?;
    listing.finish()?;
    Ok(Outcome::Clean)
}

fn kind(kind: PointKind) -> String {
    match kind {
        PointKind::Fence => "fence".to_owned(),
        PointKind::Flush => "flush".to_owned(),
        PointKind::Completion => "completion".to_owned(),
        PointKind::Checkpoint(number) => format!("checkpoint {number}"),
        PointKind::Logged => "operation".to_owned(),
        PointKind::End => "end".to_owned(),
    }
}

/// Writes failure points and images as they come: a trace can have more than memory holds.
struct Listing<'a> {
    /// The last point that had an image.
    known: Known<u64>,
    saver: Option<Saver<'a>>,
    /// JSON.
    indexes: Vec<Box<dyn Write + 'a>>,
    /// For people.
    table: Option<Box<dyn Write + 'a>>,
    points: u64,
    images: u64,
    of_point: u64,
}

impl Listing<'_> {
    fn start(&mut self) -> std::io::Result<()> {
        if let Some(table) = &mut self.table {
            writeln!(table, "   event  before            lines  blocks  images")?;
        }
        self.indexed("{\"points\":[")
    }

    fn indexed(&mut self, text: &str) -> std::io::Result<()> {
        self.indexes.iter_mut().try_for_each(|index| index.write_all(text.as_bytes()))
    }

    fn finish(mut self) -> std::io::Result<()> {
        let forgotten = self.known.forgotten();
        self.indexed(&format!("],\"images\":{},\"forgotten\":{forgotten}}}\n", self.images))?;
        self.indexes.iter_mut().try_for_each(|index| index.flush())?;
        let Some(mut table) = self.table else { return Ok(()) };
        writeln!(table, "{} failure points, {} distinct images", self.points, self.images)?;
        if forgotten > 0 {
            writeln!(
                table,
                "{forgotten} were forgotten to save memory, and counted again if they came again"
            )?;
        }
        Ok(())
    }

    fn end_of(&mut self, point: &Point) -> std::io::Result<()> {
        let images = self.of_point;
        let json = json!({
            "event": point.event, "checkpoint": point.checkpoint, "kind": kind(point.kind),
            "dirty_lines": point.dirty_lines, "dirty_blocks": point.dirty_blocks, "count": images,
            "all": point.is_exhaustive, "cut": point.is_cut,
        });
        // The rest of the object that has begun with its images.
        self.indexed(&format!("],{}", &json.to_string()[1..]))?;
        let Some(table) = &mut self.table else { return Ok(()) };
        let (lines, blocks) = (point.dirty_lines, point.dirty_blocks);
        let how = match (point.is_exhaustive, point.is_cut) {
            (true, _) => "all",
            (false, false) => "",
            (false, true) => "cut",
        };
        let kind = kind(point.kind);
        let line = format!("{:>8}  {kind:16}  {lines:>5}  {blocks:>6}  {images:>6}  {how}", point.event);
        writeln!(table, "{}", line.trim_end())
    }
}

fn written(result: std::io::Result<()>) -> Result<(), CheckError> {
    result.map_err(CheckError::file("write", Path::new("the list of images")))
}

impl Sink for Listing<'_> {
    fn begin(&mut self, _: &Point, _: &Contents) -> Result<(), CheckError> {
        self.of_point = 0;
        self.points += 1;
        let comma = if self.points > 1 { "," } else { "" };
        written(self.indexed(&format!("{comma}\n{{\"images\":[")))
    }

    fn image(&mut self, contents: Contents, part: Part, _: bool) -> Result<(), CheckError> {
        let hash = contents.hash();
        let before = self.known.get_mut(&hash).map(|point| std::mem::replace(point, self.points));
        if before == Some(self.points) {
            return Ok(());
        }
        if before.is_none() {
            self.known.put(&hash, self.points);
            self.images += 1;
            if let Some(saver) = &mut self.saver {
                saver.save(&contents, &hash)?;
            }
        }
        self.of_point += 1;
        let comma = if self.of_point > 1 { "," } else { "" };
        let part = format!("{part:?}").to_lowercase();
        written(self.indexed(&format!("{comma}\n{{\"image\":\"{hash}\",\"part\":\"{part}\"}}")))
    }

    fn end(&mut self, point: &Point) -> Result<(), CheckError> {
        written(self.end_of(point))
    }
}
