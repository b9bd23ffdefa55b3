//! Properties of users, and what compression saves: in reports of datasets.

use fastness_store::{Dataset, Ratio};

use crate::dataset_report::{DatasetReport, PropertyReport, RatioReport};
use crate::node::Node;
use crate::protocol::Failure;

/// Those of a dataset itself. If they cannot be read, none: its other properties are shown all the same.
pub(crate) fn own(dataset: &Dataset) -> Vec<PropertyReport> {
    let own = dataset.user_properties().unwrap_or_default();
    own.into_iter().map(|(name, value)| PropertyReport { name, value, source: "local".to_owned() }).collect()
}

/// Adds to each dataset or snapshot what it inherits of user properties from those above it in the list.
/// Nodes answer without that: each value crosses the socket once.
pub fn inherit_user_properties(reports: &mut [DatasetReport]) {
    let is_user = |property: &&PropertyReport| property.name.contains(':') && property.source == "local";
    let all: std::collections::BTreeMap<String, Vec<PropertyReport>> = reports
        .iter()
        .map(|report| (report.name.clone(), report.properties.iter().filter(is_user).cloned().collect()))
        .collect();
    for report in reports {
        let mut above = report.name.as_str();
        while let Some(at) = above.rfind(['/', '@']) {
            above = &above[..at];
            for property in all.get(above).into_iter().flatten() {
                if report.properties.iter().all(|known| known.name != property.name) {
                    let source = format!("inherited from {above}");
                    report.properties.push(PropertyReport { source, ..property.clone() });
                }
            }
        }
    }
}

fn percent(ratio: Ratio) -> u64 {
    let Ratio { plain_bytes, stored_bytes, .. } = ratio;
    if stored_bytes == 0 { 100 } else { (u128::from(plain_bytes) * 100 / u128::from(stored_bytes)) as u64 }
}

impl Node {
    pub(crate) fn ratios(&self, names: &[String]) -> Result<Vec<Option<RatioReport>>, Failure> {
        names.iter().map(|name| self.ratio(name)).collect()
    }

    fn ratio(&self, name: &str) -> Result<Option<RatioReport>, Failure> {
        let pool = self.pool();
        let Ok(dataset) = pool.dataset(name) else { return Ok(None) };
        let referenced = dataset.shown_ratio()?;
        let mut used = Ratio::default();
        if name.contains('@') {
            used = referenced;
        } else {
            for below in self.tree_of(name).iter().filter(|below| !below.contains('@')) {
                // It may have been destroyed in the meantime.
                if let Ok(dataset) = pool.dataset(below) {
                    used = used.with(dataset.used_ratio()?);
                }
            }
        }
        Ok(Some(RatioReport { used_percent: percent(used), referenced_percent: percent(referenced) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(name: &str, own: &[(&str, &str)]) -> DatasetReport {
        let property = |(name, value): &(&str, &str)| PropertyReport {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
            source: "local".to_owned(),
        };
        let json = serde_json::json!({"name": name, "kind": "volume", "used_bytes": 0, "properties": []});
        let empty: DatasetReport = serde_json::from_value(json).unwrap();
        DatasetReport { properties: own.iter().map(property).collect(), ..empty }
    }

    #[test]
    fn the_nearest_dataset_above_gives_a_value() {
        let mut all = [
            report("tank", &[("a:x", "1"), ("a:y", "1"), ("sync", "always")]),
            report("tank/b", &[("a:x", "2")]),
            report("tank/b/c", &[("a:z", "")]),
            report("tank/b/c@s", &[]),
            report("tank/bb", &[("a:x", "")]),
        ];
        inherit_user_properties(&mut all);
        let shown = |report: &DatasetReport| {
            let mut rows: Vec<_> = report
                .properties
                .iter()
                .map(|is| format!("{}={} {}", is.name, is.value, is.source))
                .collect();
            rows.sort();
            rows.join(", ")
        };
        assert_eq!(shown(&all[1]), "a:x=2 local, a:y=1 inherited from tank");
        assert_eq!(
            shown(&all[3]),
            "a:x=2 inherited from tank/b, a:y=1 inherited from tank, a:z= inherited from tank/b/c"
        );
        assert_eq!(shown(&all[4]), "a:x= local, a:y=1 inherited from tank");
    }

    #[test]
    fn ratios_of_nothing_are_one() {
        let percent = |plain_bytes, stored_bytes| percent(Ratio { plain_bytes, stored_bytes });
        assert_eq!(
            [percent(0, 0), percent(8, 4), percent(u64::MAX, 4096)],
            [100, 200, 450_359_962_737_049_599]
        );
    }
}
