//! Two looks at what was written, and what happened between them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::{RegionName, Source, Written};

/// What a thread has written to a region, in all and lately.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Flow {
    /// The process.
    pub pid: u32,
    /// The thread; none: those that have ended, together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
    /// The region.
    #[serde(serialize_with = "as_itself")]
    pub region: Arc<RegionName>,
    /// Where the figures come from.
    pub source: Source,
    /// Bytes so far.
    pub bytes: u64,
    /// Bytes a second, between the two looks.
    pub bytes_per_s: f64,
    /// Writes a second; samples do not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writes_per_s: Option<f64>,
}

fn as_itself<S: Serializer>(region: &Arc<RegionName>, to: S) -> Result<S::Ok, S::Error> {
    region.as_ref().serialize(to)
}

type Key = (u32, Option<u32>, Arc<RegionName>, Source);

/// What happened between two looks, the fastest first.
///
/// A thread that has ended in between has moved to the row without a thread: what it had written before is
/// taken off that row, so that nothing counts twice. What goes back, as after a process that has the number
/// of another one, begins anew.
pub fn flows(before: &[Written], now: &[Written], seconds: f64) -> Vec<Flow> {
    let key = |row: &Written| -> Key { (row.pid, row.thread, row.region.clone(), row.source) };
    let old: HashMap<Key, (u64, u64)> =
        before.iter().map(|row| (key(row), (row.bytes, row.writes.unwrap_or(0)))).collect();
    let living: HashMap<Key, ()> = now.iter().map(|row| (key(row), ())).collect();
    let mut moved: HashMap<Key, (u64, u64)> = HashMap::new();
    for (of, (bytes, writes)) in &old {
        if of.1.is_some() && !living.contains_key(of) {
            let ended = moved.entry((of.0, None, of.2.clone(), of.3)).or_default();
            *ended = (ended.0.saturating_add(*bytes), ended.1.saturating_add(*writes));
        }
    }
    let seconds = seconds.max(1e-3);
    let mut flows = Vec::new();
    for row in now {
        let key = key(row);
        let known = |map: &HashMap<Key, (u64, u64)>| map.get(&key).copied().unwrap_or_default();
        let (was, came) = (known(&old), known(&moved));
        let rate = |now: u64, was: u64, came: u64| {
            let change = now.checked_sub(was).unwrap_or(now).saturating_sub(came);
            change as f64 / seconds
        };
        flows.push(Flow {
            pid: row.pid,
            thread: row.thread,
            region: row.region.clone(),
            source: row.source,
            bytes: row.bytes,
            bytes_per_s: rate(row.bytes, was.0, came.0),
            writes_per_s: row.writes.map(|writes| rate(writes, was.1, came.1)),
        });
    }
    flows.sort_by(|a, b| {
        b.bytes_per_s.total_cmp(&a.bytes_per_s).then_with(|| (a.pid, a.thread).cmp(&(b.pid, b.thread)))
    });
    flows
}

/// For each region: bytes a second, and threads that write.
pub fn totals_by_region(flows: &[Flow]) -> BTreeMap<Arc<RegionName>, (f64, usize)> {
    let mut totals: BTreeMap<Arc<RegionName>, (f64, usize)> = BTreeMap::new();
    for flow in flows {
        let total = totals.entry(flow.region.clone()).or_default();
        total.0 += flow.bytes_per_s;
        total.1 += usize::from(flow.thread.is_some() && flow.bytes_per_s > 0.0);
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: u32, thread: Option<u32>, bytes: u64) -> Written {
        let region = Arc::new(RegionName { kind: "x".to_owned(), path: Some("/x".into()), numa_node: None });
        Written { pid, thread, region, bytes, writes: Some(bytes / 64), source: Source::Exact }
    }

    fn rates(before: &[Written], now: &[Written]) -> Vec<(u32, Option<u32>, f64, f64)> {
        let of = |flow: Flow| (flow.pid, flow.thread, flow.bytes_per_s, flow.writes_per_s.unwrap());
        flows(before, now, 2.0).into_iter().map(of).collect()
    }

    #[test]
    fn rates_are_differences_and_the_fastest_is_first() {
        let before = [row(1, Some(1), 64), row(1, Some(2), 640), row(2, Some(3), 0)];
        let now = [row(1, Some(1), 192), row(1, Some(2), 640), row(2, Some(3), 6400), row(2, Some(4), 1280)];
        let expected = [
            (2, Some(3), 3200.0, 50.0),
            (2, Some(4), 640.0, 10.0),
            (1, Some(1), 64.0, 1.0),
            (1, Some(2), 0.0, 0.0),
        ];
        assert_eq!(rates(&before, &now), expected);
        let totals = totals_by_region(&flows(&before, &now, 2.0));
        assert_eq!(totals.into_values().collect::<Vec<_>>(), [(3904.0, 3)]);
    }

    /// The sum of all rows is what was written, whoever has ended in between.
    #[test]
    fn a_thread_that_ends_counts_once() {
        let before = [row(1, Some(1), 6400), row(1, Some(2), 640), row(1, None, 64)];
        let now = [row(1, Some(2), 1280), row(1, None, 64 + 6400 + 128)];
        assert_eq!(rates(&before, &now), [(1, Some(2), 320.0, 5.0), (1, None, 64.0, 1.0)]);
        let first = rates(&[], &now);
        assert_eq!(first.iter().map(|row| row.2).sum::<f64>(), (1280.0 + 6592.0) / 2.0);
    }

    #[test]
    fn a_count_that_goes_back_begins_anew() {
        assert_eq!(rates(&[row(1, Some(1), 1 << 40)], &[row(1, Some(1), 128)]), [(1, Some(1), 64.0, 1.0)]);
    }
}
