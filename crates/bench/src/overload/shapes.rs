//! The shapes of the sources' figures: speed and CPU cost over the number of writers, on the model.
//!
//! Two rows for each curve. Speed: all its points, and the last one against the best. CPU cost: all its
//! points, and the last one against that with as many writers as the limit allows.

use std::sync::Arc;
use std::time::Duration;

use fastness_pmem::gate::{Gate, Policy};
use fastness_pmem::model::{
    DeviceModel, DeviceProfile, FOUR_INTERLEAVED, Node, ONE_MODULE, SimulatedQueue, Stall,
};

use super::load::{Point, gated, logged, point};
use crate::error::Result;
use crate::{Options, Row};

/// How long one write takes in real time, about: sleeping is exact enough then.
const WRITE_REAL: Duration = Duration::from_millis(6);
/// Rounds of each point.
const ROUNDS: u32 = 3;
/// Limit of figure 5.2.
const LIMIT: u32 = 3;
/// What a file system does for a write besides; the source does not say it.
const FILE_SYSTEM: Duration = Duration::from_micros(2);
/// Of figure 7.11: 93,000 writes a second with one job, 1.66 us of each in PM.
const ZFS: Duration = Duration::from_nanos(9090);

/// A policy for a device.
type MakePolicy = fn(&Arc<DeviceModel>) -> Policy;

/// How a curve's writers write.
#[derive(Clone)]
enum How {
    /// Through a gate with this policy.
    Gate(MakePolicy),
    /// As entries of a PM log with so many commit slots.
    Log(u32),
}

/// A curve of a figure.
struct Curve {
    figure: &'static str,
    what: String,
    profile: DeviceProfile,
    how: How,
    node: Node,
    block: usize,
    own_work: Duration,
    /// Writers at a time.
    limit: usize,
    writers: &'static [usize],
    /// Whether it is to hold its speed and its cost.
    has_goal: bool,
}

pub(super) fn rows(options: Options) -> Result<Vec<Row>> {
    let mut curves = Vec::new();
    curves.extend(figure_5_2(options));
    if !options.quick {
        curves.extend(figure_3("3.5", FOUR_INTERLEAVED, &[1, 2, 4, 8, 18]));
        curves.extend(figure_3("3.6", ONE_MODULE, &[1, 2, 4, 18]));
    }
    curves.extend(figure_7_11(options));
    let real = Duration::from_millis(if options.quick { 300 } else { 900 });
    let mut rows = Vec::new();
    for curve in curves {
        let points =
            curve.writers.iter().map(|&writers| curve.point(writers, real)).collect::<Result<Vec<_>>>()?;
        rows.extend(curve.rows(&points));
    }
    Ok(rows)
}

fn figure_3(figure: &'static str, profile: DeviceProfile, slots: &[u32]) -> Vec<Curve> {
    const WRITERS: &[usize] = &[1, 2, 4, 5, 8, 9, 12, 18];
    let log = |&slots: &u32| Curve {
        figure,
        what: format!("PM log, {slots} slots"),
        profile,
        how: How::Log(slots),
        node: Node::Local,
        block: 4096,
        own_work: Duration::ZERO,
        limit: slots as usize,
        writers: WRITERS,
        has_goal: slots < 18,
    };
    let mut curves: Vec<Curve> = slots.iter().map(log).collect();
    let free = Curve { what: "copies, no limit".to_owned(), how: How::Gate(|_| Policy::Direct), ..log(&18) };
    curves.push(free);
    curves
}

fn figure_5_2(options: Options) -> Vec<Curve> {
    const ALL: &[usize] = &[1, 2, 3, 4, 5, 6, 7, 8];
    const FEW: &[usize] = &[1, 3, 8];
    // Workers and the engine are near the device, wherever the callers are.
    let policies: [(&str, MakePolicy, bool); 5] = [
        ("no limit", |_| Policy::Direct, false),
        ("semaphore", |_| Policy::Semaphore { writers_max: LIMIT }, false),
        ("workers", |_| workers(false), true),
        ("adaptive workers", |_| workers(true), false),
        ("DMA (simulated)", dma, true),
    ];
    let nodes: &[(Node, &str)] = if options.quick {
        &[(Node::Local, "local")]
    } else {
        &[(Node::Local, "local"), (Node::Remote, "remote")]
    };
    let mut curves = Vec::new();
    for &(node, place) in nodes {
        for (name, policy, is_near) in policies {
            curves.push(Curve {
                figure: "5.2",
                what: format!("{place}, {name}"),
                profile: ONE_MODULE,
                how: How::Gate(policy),
                node: if is_near { Node::Local } else { node },
                block: 16_384,
                own_work: FILE_SYSTEM,
                limit: LIMIT as usize,
                writers: if options.quick { FEW } else { ALL },
                has_goal: name != "no limit",
            });
        }
    }
    curves
}

fn workers(is_adaptive: bool) -> Policy {
    Policy::Workers { writers_max: LIMIT, is_adaptive, cpus: Vec::new() }
}

fn dma(device: &Arc<DeviceModel>) -> Policy {
    let queue = Arc::new(SimulatedQueue::new(LIMIT as usize, 1 << 20, Some(device.clone())));
    Policy::Dma { writers_max: LIMIT, is_adaptive: false, queue }
}

fn figure_7_11(options: Options) -> Vec<Curve> {
    const ALL: &[usize] = &[1, 2, 4, 8, 12, 18];
    const FEW: &[usize] = &[1, 8, 18];
    let devices: &[DeviceProfile] =
        if options.quick { &[ONE_MODULE] } else { &[ONE_MODULE, FOUR_INTERLEAVED] };
    let slots: &[u32] = if options.quick { &[3, 24] } else { &[3, 4, 8, 12, 24] };
    let curve = |profile: DeviceProfile, slots: u32| Curve {
        figure: "7.11",
        what: format!("PM log under ZFS's own work, {slots} slots"),
        profile,
        how: How::Log(slots),
        node: Node::Local,
        block: 4096,
        own_work: ZFS,
        limit: slots as usize,
        writers: if options.quick { FEW } else { ALL },
        has_goal: slots <= 4,
    };
    devices.iter().flat_map(|profile| slots.iter().map(|slots| curve(*profile, *slots))).collect()
}

impl Curve {
    /// The best of some rounds: whatever else the machine does lets sleepers sleep longer, and a device of
    /// the model is idle meanwhile.
    fn point(&self, writers: usize, real: Duration) -> Result<Point> {
        let rounds = (0..ROUNDS).map(|_| self.round(writers, real / ROUNDS)).collect::<Result<Vec<_>>>()?;
        let best = rounds.into_iter().max_by(|a, b| a.gib_per_s.total_cmp(&b.gib_per_s));
        Ok(best.expect("there are rounds"))
    }

    fn round(&self, writers: usize, real: Duration) -> Result<Point> {
        let device = Arc::new(DeviceModel::new(self.profile, Stall::Sleep { slower: self.slower(writers) }));
        let block = vec![0xa5; self.block];
        match &self.how {
            How::Gate(policy) => {
                let gate = Arc::new(Gate::new(policy(&device))?);
                let writers = gated(writers, &gate, &device, self.node)?;
                point(writers, &device, &block, self.own_work, real)
            }
            How::Log(slots) => {
                let blocks = (real.as_nanos() / WRITE_REAL.as_nanos()) as usize * 8 + 8;
                let writers = logged(writers, *slots, &device, self.node, blocks * self.block)?;
                point(writers, &device, &block, self.own_work, real)
            }
        }
    }

    /// So that a write takes about as long as it should.
    fn slower(&self, writers: usize) -> u32 {
        let at_once = writers.min(self.limit) as u32;
        let gib_per_s = self.profile.gib_per_s(self.node, at_once) / f64::from(at_once);
        let write_s = self.block as f64 / gib_per_s / (1_u64 << 30) as f64 + self.own_work.as_secs_f64();
        ((WRITE_REAL.as_secs_f64() / write_s) as u32).max(1)
    }

    fn rows(&self, points: &[Point]) -> Vec<Row> {
        let list = |of: fn(&Point) -> f64| {
            let points = points.iter().map(|point| format!("{}: {:.2}", point.writers, of(point)));
            points.collect::<Vec<_>>().join(", ")
        };
        let last = points.last().expect("a curve has points");
        let best = points.iter().map(|point| point.gib_per_s).fold(0.0, f64::max);
        // The fewest that use all of the limit, if more come after them.
        let at_limit = points.iter().position(|point| point.writers >= self.limit);
        let base =
            at_limit.filter(|index| index + 1 < points.len()).map_or(&points[0], |index| &points[index]);
        let base_name =
            if base.writers == 1 { "1 writer".to_owned() } else { format!("{} writers", base.writers) };
        let head = format!("{}, {}, {}", self.figure, self.profile.name, self.what);
        let mut rows = vec![
            self.row(
                &head,
                "GiB/s",
                &list(|point| point.gib_per_s),
                (last.gib_per_s, best),
                "its best",
                Some(0.9),
            ),
            self.row(
                &head,
                "CPU s/GiB",
                &list(|point| point.cpu_s_per_gib),
                (last.cpu_s_per_gib, base.cpu_s_per_gib),
                &base_name,
                // With work of their own, as many writers as slots do not use all slots.
                (self.own_work <= FILE_SYSTEM).then_some(1.15),
            ),
        ];
        if self.figure == "7.11" {
            let of = |point: &Point| point.stall_us;
            rows.push(self.row(&head, "us in PM", &list(of), (of(last), of(base)), &base_name, None));
        }
        rows
    }

    fn row(
        &self,
        head: &str,
        unit: &'static str,
        list: &str,
        (value, other): (f64, f64),
        baseline: &str,
        bound: Option<f64>,
    ) -> Row {
        let ratio = value / other.max(1e-9);
        let goal = bound.filter(|_| self.has_goal).map(|bound| {
            let (word, met) = if bound > 1.0 { ("most", ratio <= bound) } else { ("least", ratio >= bound) };
            (format!("at {word} {bound}x"), met)
        });
        Row {
            name: format!("{head}: {unit} by writers {list}"),
            value: Some(value),
            unit,
            ratio: Some(ratio),
            baseline: Some(baseline.to_owned()),
            met: goal.as_ref().map(|(_, met)| *met),
            goal: goal.map(|(words, _)| words),
            medium: format!("model of {}", self.profile.name),
            threads: self.writers.last().copied().unwrap_or_default(),
            ..Row::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows_of(limit: usize, has_goal: bool, points: &[(usize, f64, f64)]) -> Vec<Row> {
        let curve = Curve { limit, has_goal, ..figure_5_2(Options { quick: true }).remove(1) };
        let point =
            |&(writers, gib_per_s, cpu_s_per_gib)| Point { writers, gib_per_s, cpu_s_per_gib, stall_us: 0.0 };
        curve.rows(&points.iter().map(point).collect::<Vec<_>>())
    }

    #[test]
    fn a_curve_is_judged_by_its_best_speed_and_its_cost_at_the_limit() {
        let held = rows_of(3, true, &[(1, 1.0, 0.5), (3, 2.0, 1.5), (8, 1.9, 1.6)]);
        assert_eq!((held[0].ratio, held[0].met), (Some(0.95), Some(true)));
        assert!((held[1].ratio.unwrap() - 1.6 / 1.5).abs() < 1e-9 && held[1].met == Some(true));
        assert!(held[0].name.contains("1: 1.00, 3: 2.00, 8: 1.90") && held[0].medium.contains("model"));
        let lost = rows_of(3, true, &[(1, 1.0, 0.5), (3, 2.0, 1.5), (8, 1.7, 1.8)]);
        assert_eq!((lost[0].met, lost[1].met), (Some(false), Some(false)));
        let free = rows_of(18, false, &[(1, 1.0, 0.5), (18, 0.5, 10.0)]);
        assert_eq!(
            (free[1].ratio, free[1].baseline.as_deref(), free[1].met),
            (Some(20.0), Some("1 writer"), None)
        );
    }

    /// Each write is slowed down to about the same time, however many share the device.
    #[test]
    fn time_is_slowed_down_by_how_long_a_write_takes() {
        for curve in figure_5_2(Options::default()).iter().filter(|curve| curve.node == Node::Local) {
            let of = |writers: usize| {
                let at_once = writers.min(curve.limit) as f64;
                let gib_per_s = curve.profile.gib_per_s(curve.node, at_once as u32) / at_once;
                let write_s =
                    curve.block as f64 / gib_per_s / (1_u64 << 30) as f64 + curve.own_work.as_secs_f64();
                write_s * f64::from(curve.slower(writers))
            };
            assert!((1..=8).all(|writers| (0.004..0.007).contains(&of(writers))), "{}", curve.what);
        }
    }
}
