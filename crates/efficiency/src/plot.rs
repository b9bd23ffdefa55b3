//! Costs as pictures: speed, CPUs in use, CPU cost and energy cost over the values that a load was run for, a
//! curve for each report.
//!
//! Source: dissertation (2025), figures 4.7 and 4.8.

use std::io;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::cost::{Report, RunCost};
use crate::error::CostError;

const WIDTH: u32 = 960;
const HEIGHT: u32 = 700;
const COLOURS: [RGBColor; 6] = [
    RGBColor(21, 101, 192),
    RGBColor(198, 40, 40),
    RGBColor(46, 125, 50),
    RGBColor(249, 168, 37),
    RGBColor(106, 27, 154),
    RGBColor(96, 96, 96),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Beyond it nothing is drawn: reports come from files, too.
const DRAWN_MAX: f64 = 1e15;

type Drawn = Result<(), DrawingAreaErrorKind<io::Error>>;

/// What a picture shows.
struct Panel {
    title: &'static str,
    of: fn(&RunCost) -> Option<f64>,
}

const PANELS: [Panel; 4] = [
    Panel { title: "Speed [GiB/s]", of: |run| run.gib_per_s },
    Panel { title: "CPUs in use", of: |run| Some(run.cores.busy()) },
    Panel { title: "CPU cost [s/GiB]", of: |run| run.cpu_s_per_gib },
    Panel { title: "Energy cost [J/GiB]", of: |run| run.joules_per_gib },
];

/// Draws the reports into one SVG file.
///
/// Where the values of all runs are numbers, they are the horizontal axis; otherwise it counts the runs. A
/// picture without any figure says so.
///
/// # Errors
/// [`CostError::Draw`].
pub fn draw_costs(path: &Path, reports: &[Report]) -> Result<(), CostError> {
    draw(path, reports).map_err(|error| CostError::Draw { path: path.to_owned(), why: error.to_string() })
}

fn draw(path: &Path, reports: &[Report]) -> Drawn {
    let whole = SVGBackend::new(path, (WIDTH, HEIGHT)).into_drawing_area();
    whole.fill(&WHITE)?;
    let (heads, below) = whole.split_vertically(30);
    let mut left = 20;
    for (report, colour) in reports.iter().zip(COLOURS.iter().cycle()) {
        heads.draw(&Circle::new((left, 18), 4, colour.filled()))?;
        let name: String = report.name.chars().take(40).collect();
        heads.draw(&Text::new(name.clone(), (left + 10, 12), ("sans-serif", 14)))?;
        left += 40 + 8 * name.chars().count() as i32;
    }
    let places = are_numbers(reports);
    for (area, panel) in below.split_evenly((2, 2)).iter().zip(&PANELS) {
        draw_panel(area, panel, reports, places)?;
    }
    whole.present()
}

fn draw_panel(area: &Area<'_>, panel: &Panel, reports: &[Report], are_numbers: bool) -> Drawn {
    let curves: Vec<Vec<(f64, f64)>> =
        reports.iter().map(|report| points(report, panel.of, are_numbers)).collect();
    let all = || curves.iter().flatten();
    if all().next().is_none() {
        area.draw(&Text::new(panel.title, (60, 20), ("sans-serif", 15)))?;
        return area.draw(&Text::new(reason(panel, reports), (60, 60), ("sans-serif", 13)));
    }
    let bound =
        |of: fn(&(f64, f64)) -> f64, pick: fn(f64, f64) -> f64| all().map(of).reduce(pick).unwrap_or(0.0);
    let (from, to) = (bound(|point| point.0, f64::min), bound(|point| point.0, f64::max));
    let (bottom, top) = (bound(|point| point.1, f64::min).min(0.0), bound(|point| point.1, f64::max));
    let width = if to > from { to - from } else { 1.0 };
    let top = if top > bottom { top + 0.08 * (top - bottom) } else { bottom + 1.0 };
    let mut chart = ChartBuilder::on(area)
        .caption(panel.title, ("sans-serif", 15))
        .margin(10)
        .x_label_area_size(24)
        .y_label_area_size(52)
        .build_cartesian_2d(from - 0.05 * width..to + 0.05 * width, bottom..top)?;
    chart.configure_mesh().light_line_style(TRANSPARENT).draw()?;
    for (curve, colour) in curves.into_iter().zip(COLOURS.iter().cycle()) {
        chart.draw_series([PathElement::new(curve.clone(), colour.stroke_width(2))])?;
        chart.draw_series(curve.into_iter().map(|point| Circle::new(point, 3, colour.filled())))?;
    }
    Ok(())
}

fn are_numbers(reports: &[Report]) -> bool {
    reports.iter().flat_map(|report| &report.runs).all(|run| number(run).is_some())
}

fn number(run: &RunCost) -> Option<f64> {
    run.value.as_ref()?.parse().ok().filter(can_be_drawn)
}

fn can_be_drawn(value: &f64) -> bool {
    value.abs() <= DRAWN_MAX
}

fn points(report: &Report, of: fn(&RunCost) -> Option<f64>, are_numbers: bool) -> Vec<(f64, f64)> {
    let place =
        |index: usize, run: &RunCost| if are_numbers { number(run) } else { Some((index + 1) as f64) };
    let point = |(index, run)| Some((place(index, run)?, of(run).filter(can_be_drawn)?));
    report.runs.iter().enumerate().filter_map(point).collect()
}

/// Why a picture has no figure.
fn reason(panel: &Panel, reports: &[Report]) -> String {
    let mut runs = reports.iter().flat_map(|report| &report.runs);
    let is_energy = panel.title.starts_with("Energy");
    let why =
        runs.find_map(|run| run.no_bytes.clone().or_else(|| run.no_energy.clone().filter(|_| is_energy)));
    let why = why.unwrap_or_else(|| "no figures".to_owned());
    // As much as fits.
    if why.chars().count() > 64 { format!("{}...", why.chars().take(60).collect::<String>()) } else { why }
}

#[cfg(test)]
mod tests;
