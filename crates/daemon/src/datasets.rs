//! Requests about datasets and their properties.

use std::collections::BTreeMap;

use fastness_base::ErrorKind;
use fastness_store::{
    Dataset, DatasetInfo, DatasetKind, ObjectId, Pool, PoolError, Property, Tx, is_user_property,
};
use fastness_sync::lock;

use crate::dataset_report::{DatasetReport, PropertyReport};
use crate::destroyed::DestroyedReport;
use crate::node::Node;
use crate::protocol::Failure;
use crate::report::Address;
use crate::user_properties::own;

/// As a value of `refreservation`: all that the volume could need.
pub(crate) const AUTO: &str = "auto";

/// Parses property values, but for those of users.
fn parse_properties(words: &[(String, String)]) -> Result<Vec<(Property, u64)>, Failure> {
    let parse = |(name, value): &(String, String)| {
        let property: Property = name.parse()?;
        Ok((property, property.parse(value)?))
    };
    words.iter().filter(|(name, _)| !is_user_property(name)).map(parse).collect()
}

/// Properties of users among them.
fn of_users(words: &[(String, String)]) -> Vec<(String, Option<String>)> {
    let of_users = words.iter().filter(|(name, _)| is_user_property(name)).cloned();
    of_users.map(|(name, value)| (name, Some(value))).collect()
}

impl Node {
    pub(crate) fn datasets(&self) -> Vec<DatasetReport> {
        self.pool().datasets().iter().filter_map(|info| self.dataset_report(info)).collect()
    }

    /// `None` if it was destroyed in the meantime.
    fn dataset_report(&self, info: &DatasetInfo) -> Option<DatasetReport> {
        let dataset = self.pool().dataset(&info.name).ok()?;
        let is_volume = matches!(info.kind, DatasetKind::Volume | DatasetKind::Receiving);
        let size_bytes = match is_volume {
            true => dataset.object(ObjectId(1)).ok().map(|data| data.size_bytes()),
            false => None,
        };
        let applies = |property: &Property| match property {
            Property::RecordSize => !is_volume,
            Property::VolBlockSize => is_volume,
            _ => true,
        };
        let properties = Property::ALL.into_iter().filter(applies);
        let properties =
            properties.map(|property| property_report(&self.pool(), &dataset, &info.name, property));
        Some(DatasetReport {
            name: info.name.clone(),
            kind: info.kind.to_string(),
            used_bytes: info.used_bytes,
            available_bytes: Some(dataset.available_bytes().0),
            referenced_bytes: dataset.shown_bytes().unwrap_or(0),
            size_bytes,
            token: token_of(&self.pool(), info),
            origin: dataset.origin(),
            clones: Vec::new(),
            created_unix_s: dataset.created_unix_s(),
            ratios: None,
            properties: properties.chain(own(&dataset)).collect(),
        })
    }

    pub(crate) fn create_dataset(
        &self,
        name: &str,
        properties: &[(String, String)],
        with_parents: bool,
    ) -> Result<(), Failure> {
        let plain = self.prepare(name, properties, with_parents)?;
        // A change that is overtaken by a newer txg is made again: it is one step, or nothing.
        self.change(|tx| self.pool().create_dataset(tx, name, DatasetKind::Folder, &plain).map(drop))?;
        self.set_user_properties(name, properties)
    }

    /// Sets properties of users, which were [looked at](Self::prepare) before, of a dataset that was just
    /// made.
    pub(crate) fn set_user_properties(
        &self,
        name: &str,
        properties: &[(String, String)],
    ) -> Result<(), Failure> {
        let users = of_users(properties);
        if users.is_empty() { Ok(()) } else { self.set_properties(name, &users) }
    }

    /// Before a dataset is made: its properties, and its parents if they are wanted.
    pub(crate) fn prepare(
        &self,
        name: &str,
        properties: &[(String, String)],
        with_parents: bool,
    ) -> Result<Vec<(Property, u64)>, Failure> {
        let plain = parse_properties(properties)?;
        self.pool().check_user_properties(&of_users(properties))?;
        if with_parents {
            self.create_parents(name)?;
        }
        Ok(plain)
    }

    /// Creates the missing parents of a dataset.
    fn create_parents(&self, name: &str) -> Result<(), Failure> {
        for (end, _) in name.match_indices('/').skip(1) {
            let parent = &name[..end];
            if self.pool().dataset(parent).is_err() {
                let create =
                    |tx: &Tx| self.pool().create_dataset(tx, parent, DatasetKind::Folder, &[]).map(drop);
                self.pool().transact(create)?;
            }
        }
        Ok(())
    }

    /// A dataset with all that is below it, and the snapshots of all these.
    pub(crate) fn tree_of(&self, name: &str) -> Vec<String> {
        let pool = self.pool();
        let is_below = |other: &str| {
            other.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']))
        };
        let datasets = pool.datasets().into_iter().map(|info| info.name);
        let snapshots = pool.snapshots().into_iter().map(|info| info.name);
        datasets.chain(snapshots).filter(|other| is_below(other)).collect()
    }

    pub(crate) fn destroy_dataset(
        &self,
        name: &str,
        is_recursive: bool,
        is_dry: bool,
    ) -> Result<DestroyedReport, Failure> {
        if name.contains('@') {
            return self.destroy_snapshots(name, is_recursive, is_dry);
        }
        let names = self.tree_of(name);
        if names.len() > 1 && !is_recursive {
            let what = if names[1..].iter().all(|other| other.contains('@')) {
                "snapshots"
            } else {
                "datasets below it"
            };
            let text =
                format!("{name} has {what}; say --recursive to destroy them all: {}", names[1..].join(", "));
            return Err(Failure::refuse(ErrorKind::Invalid, text));
        }
        let used = self.pool().datasets().into_iter().find(|info| info.name == name);
        let reclaimed_bytes = used.map_or(0, |info| info.used_bytes);
        if names.is_empty() {
            return Err(PoolError::NoDataset(name.to_owned()).into());
        }
        if !is_dry {
            self.destroy_all(names.clone())?;
        }
        Ok(DestroyedReport { names, reclaimed_bytes })
    }

    /// Destroys datasets and snapshots, none of which is in use; parents come before what is below them.
    pub(crate) fn destroy_all(&self, names: Vec<String>) -> Result<(), Failure> {
        let _mounting = lock(&self.services.mounting);
        self.refuse_served(&names)?;
        let all = names.join(", ");
        for (name, error) in self.store.destroy_datasets(names)? {
            self.journal.warn(format!("the log of {name}: {error}"));
        }
        self.journal.note(format!("{all} destroyed"));
        Ok(())
    }

    /// Refuses datasets of which one is served or mounted.
    pub(crate) fn refuse_served(&self, names: &[String]) -> Result<(), Failure> {
        if let Some(served) =
            self.services.reports().into_iter().find(|served| names.contains(&served.volume))
        {
            let text = match served.address {
                Address::Mount(path) => {
                    format!(
                        "{0} is mounted at {path}; end that with `fastness fs unmount {0}`",
                        served.volume
                    )
                }
                _ => {
                    format!("{0} is being served; end that with `fastness volume unserve {0}`", served.volume)
                }
            };
            return Err(Failure::refuse(ErrorKind::Retry, text));
        }
        Ok(())
    }

    /// One change, durable on return.
    pub(crate) fn change(&self, change: impl FnMut(&Tx) -> Result<(), PoolError>) -> Result<(), Failure> {
        let ((), txg) = self.pool().transact(change)?;
        Ok(self.pool().wait_synced(txg)?)
    }

    pub(crate) fn rename_dataset(&self, from: &str, to: &str) -> Result<(), Failure> {
        self.change(|tx| self.pool().rename_dataset(tx, from, to))
    }

    pub(crate) fn set_properties(
        &self,
        name: &str,
        values: &[(String, Option<String>)],
    ) -> Result<(), Failure> {
        let dataset = self.pool().dataset(name)?;
        let values = &self.with_thick(&dataset, values)?;
        let (users, values): (Vec<_>, Vec<_>) =
            values.iter().cloned().partition(|(property, _)| is_user_property(property));
        let parse = |(property, value): &(String, Option<String>)| {
            let property: Property = property.parse()?;
            let value = value.as_deref().map(|value| property.parse(value)).transpose()?;
            Ok((property, value))
        };
        // Of one that is named twice, the last counts.
        let values = values.iter().map(parse).collect::<Result<BTreeMap<_, _>, PoolError>>()?;
        let values: Vec<_> = values.into_iter().collect();
        self.change(|tx| dataset.set_all(tx, &values, &users))
    }
}

fn property_report(pool: &Pool, dataset: &Dataset, name: &str, property: Property) -> PropertyReport {
    let (value, is_own) = dataset.get(property);
    let source = if is_own { "local".to_owned() } else { inherited_from(pool, name, property) };
    PropertyReport { name: property.name().to_owned(), value: property.format(value), source }
}

/// Which dataset a value that is not set locally is inherited from.
fn inherited_from(pool: &Pool, name: &str, property: Property) -> String {
    let mut above = name;
    while property.is_inherited()
        && let Some((parent, _)) = above.rsplit_once('/')
    {
        above = parent;
        if pool.dataset(above).is_ok_and(|dataset| dataset.get(property).1) {
            return format!("inherited from {above}");
        }
    }
    "default".to_owned()
}

/// Where a stream goes on that ended early.
fn token_of(pool: &Pool, info: &DatasetInfo) -> Option<String> {
    if info.kind != DatasetKind::Receiving {
        return None;
    }
    let all = fastness_zvol::receiving(pool);
    all.into_iter().find(|incoming| incoming.dataset == info.name)?.token.map(|token| token.to_string())
}
