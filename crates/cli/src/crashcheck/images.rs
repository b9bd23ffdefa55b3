//! `fastness crashcheck images`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use fastness_crashcheck::generate::{CrashImages, Layout, PointKind, generate, outline};
use fastness_crashcheck::save::save;
use fastness_crashcheck::trace::open_trace;
use serde_json::json;

use super::options::{ImageArgs, Subject};
use crate::error::{Context, Result};
use crate::exit::Outcome;

pub(super) const EXAMPLES: &str = "\
Examples:
  fastness crashcheck images run.trace                     how many there are, and where
  fastness crashcheck images run.trace -o images           write them: a folder each, and index.json
  fastness crashcheck images run.trace --per-point 16 --seed 7
A failure point is a moment just before something becomes certain. One that is not marked `all` has more images
than were taken; `cut` says that the bound has left some out that the heuristics wanted.";

/// Arguments of `crashcheck images`.
#[derive(Debug, Args)]
pub(crate) struct ImagesArgs {
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

pub(super) fn run(args: ImagesArgs, out: &mut dyn Write) -> Result<Outcome> {
    let options = args.images.config(Subject::Program).options(outline(&mut open_trace(&args.trace)?)?);
    let mut reader = open_trace(&args.trace)?;
    let layout = Layout::of(reader.header())?;
    let images = generate(&mut reader, &options, None)?;
    if let Some(folder) = &args.output {
        std::fs::create_dir(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        save(&images, &layout, folder)?;
        let index = folder.join("index.json");
        std::fs::write(&index, index_of(&images).to_string())
            .with_context(|| format!("cannot write {}", index.display()))?;
    }
    match args.json {
        true => writeln!(out, "{}", index_of(&images))?,
        false => write_points(&images, out)?,
    }
    Ok(Outcome::Clean)
}

fn kind(kind: PointKind) -> String {
    match kind {
        PointKind::Fence => "fence".to_owned(),
        PointKind::Flush => "flush".to_owned(),
        PointKind::Completion => "completion".to_owned(),
        PointKind::Checkpoint(number) => format!("checkpoint {number}"),
        PointKind::End => "end".to_owned(),
    }
}

fn write_points(images: &CrashImages, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "   event  before            lines  blocks  images")?;
    for point in &images.points {
        let (lines, blocks, count) = (point.dirty_lines, point.dirty_blocks, point.images);
        let how = match (point.is_exhaustive, point.is_cut) {
            (true, _) => "all",
            (false, false) => "",
            (false, true) => "cut",
        };
        let line = format!(
            "{:>8}  {:16}  {lines:>5}  {blocks:>6}  {count:>6}  {how}",
            point.event,
            kind(point.kind)
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    writeln!(out, "{} failure points, {} distinct images", images.points.len(), images.images.len())
}

fn index_of(images: &CrashImages) -> serde_json::Value {
    let points = images.points.iter().map(|point| {
        json!({
            "event": point.event, "checkpoint": point.checkpoint, "kind": kind(point.kind),
            "dirty_lines": point.dirty_lines, "dirty_blocks": point.dirty_blocks, "images": point.images,
            "all": point.is_exhaustive, "cut": point.is_cut,
        })
    });
    let found = images.images.iter().map(|image| {
        let at = image.occurrences.iter().map(|found| {
            let part = format!("{:?}", found.part).to_lowercase();
            json!({"point": found.point, "part": part})
        });
        json!({"image": image.hash.to_string(), "at": at.collect::<Vec<_>>()})
    });
    json!({"points": points.collect::<Vec<_>>(), "images": found.collect::<Vec<_>>()})
}
