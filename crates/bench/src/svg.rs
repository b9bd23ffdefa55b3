//! A picture of the ratios.

use std::path::Path;

use plotters::prelude::*;

use crate::Row;

const ROW_PIXELS: u32 = 26;
const LABEL_PIXELS: i32 = 420;

/// Draws a bar for each row that has a ratio: green where a goal is met, red where it is missed, grey without one.
///
/// # Errors
/// If the file cannot be written.
pub fn draw_ratios(path: &Path, title: &str, rows: &[Row]) -> anyhow::Result<()> {
    let bars: Vec<(&Row, f64)> = rows.iter().filter_map(|row| Some((row, row.ratio?))).collect();
    let longest = bars.iter().map(|&(_, ratio)| ratio).fold(2.0, f64::max);
    let area = SVGBackend::new(path, (900, 90 + ROW_PIXELS * bars.len() as u32)).into_drawing_area();
    area.fill(&WHITE)?;
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
    area.present()?;
    Ok(())
}
