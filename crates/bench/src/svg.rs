//! A picture of the ratios.

use std::path::Path;

use plotters::prelude::*;

use crate::Row;
use crate::error::{Result, foreign};

const ROW_PIXELS: u32 = 26;
const LABEL_PIXELS: i32 = 420;

const PARTS_PIXELS: u32 = 46;
const PART_COLOURS: [RGBColor; 4] =
    [RGBColor(21, 101, 192), RGBColor(249, 168, 37), RGBColor(0, 131, 143), RGBColor(106, 27, 154)];

/// Whether something could be drawn.
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Draws a bar for each row that has a ratio: green where a goal is met, red where it is missed, grey without
/// one. Below them, a bar of its parts for each row that has some.
///
/// # Errors
/// If the file cannot be written.
pub fn draw_ratios(path: &Path, title: &str, rows: &[Row]) -> Result<()> {
    draw(path, title, rows).map_err(foreign)
}

fn draw(path: &Path, title: &str, rows: &[Row]) -> Drawn {
    let bars: Vec<(&Row, f64)> = rows.iter().filter_map(|row| Some((row, row.ratio?))).collect();
    let longest = bars.iter().map(|&(_, ratio)| ratio).fold(2.0, f64::max);
    let made: Vec<&Row> = rows.iter().filter(|row| !row.parts.is_empty()).collect();
    let (upper_pixels, lower_pixels) =
        (90 + ROW_PIXELS * bars.len() as u32, PARTS_PIXELS * made.len() as u32);
    let whole = SVGBackend::new(path, (900, upper_pixels + lower_pixels)).into_drawing_area();
    whole.fill(&WHITE)?;
    let (area, below) = whole.split_vertically(upper_pixels);
    for (index, row) in made.iter().enumerate() {
        draw_parts(&below, row, index as i32 * PARTS_PIXELS as i32)?;
    }
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{title}: ratio to the baseline"), ("sans-serif", 18))
        .margin(8)
        .x_label_area_size(24)
        .y_label_area_size(LABEL_PIXELS)
        .build_cartesian_2d(0.0..longest * 1.05, 0.0..bars.len() as f64)?;
    chart.configure_mesh().disable_y_mesh().y_labels(0).draw()?;
    chart.draw_series(bars.iter().enumerate().map(|(index, &(row, ratio))| {
        let top = (bars.len() - index) as f64;
        let colour = match row.met {
            Some(true) => RGBColor(46, 125, 50),
            Some(false) => RGBColor(198, 40, 40),
            None => RGBColor(140, 140, 140),
        };
        Rectangle::new([(0.0, top - 0.15), (ratio, top - 0.85)], colour.filled())
    }))?;
    for (index, &(row, ratio)) in bars.iter().enumerate() {
        let goal = row.goal.as_ref().map_or(String::new(), |goal| format!(" ({goal})"));
        let (_, y) = chart.backend_coord(&(0.0, (bars.len() - index) as f64 - 0.35));
        area.draw(&Text::new(format!("{} {ratio:.2}x{goal}", row.name), (12, y - 6), ("sans-serif", 12)))?;
    }
    whole.present()?;
    Ok(())
}

/// One bar as long as the row's value, cut into its parts.
fn draw_parts(area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>, row: &Row, top: i32) -> Drawn {
    const WIDTH: f64 = 870.0;
    area.draw(&Text::new(row.name.clone(), (12, top), ("sans-serif", 12)))?;
    let sum: f64 = row.parts.iter().map(|&(_, part)| part).sum();
    let mut from = 12.0;
    for (&(name, part), colour) in row.parts.iter().zip(PART_COLOURS.iter().cycle()) {
        let to = from + WIDTH * part / sum.max(1.0);
        let corners = [(from as i32, top + 16), (to as i32, top + 36)];
        area.draw(&Rectangle::new(corners, colour.filled()))?;
        let label = Text::new(
            format!("{name} {part:.0}"),
            (from as i32 + 4, top + 20),
            ("sans-serif", 12).into_font(),
        );
        area.draw(&label)?;
        from = to;
    }
    Ok(())
}
