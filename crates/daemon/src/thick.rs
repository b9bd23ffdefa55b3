//! Thick volumes, and volumes that could come to need more than there is.

use fastness_base::ErrorKind;
use fastness_store::{Dataset, DatasetKind, ObjectId, Property, thick_bytes};

use crate::datasets::AUTO;
use crate::node::Node;
use crate::protocol::Failure;

const NAME: &str = "refreservation";

/// Replaces `refreservation=auto` by what a volume of that size could need.
pub(crate) fn of_new_volume(
    properties: &[(String, String)],
    size_bytes: u64,
) -> Result<Vec<(String, String)>, Failure> {
    let mut block_bytes = Property::VolBlockSize.default_value();
    for (name, value) in properties {
        if name == Property::VolBlockSize.name() {
            block_bytes = Property::VolBlockSize.parse(value)?;
        }
    }
    let of = |(name, value): &(String, String)| match (name.as_str(), value.as_str()) {
        (NAME, AUTO) => (name.clone(), thick_bytes(size_bytes, block_bytes).to_string()),
        _ => (name.clone(), value.clone()),
    };
    Ok(properties.iter().map(of).collect())
}

/// What a volume could need; `None` for what is no volume.
fn whole_bytes(dataset: &Dataset) -> Option<u64> {
    let size_bytes = dataset.object(ObjectId(1)).ok()?.size_bytes();
    Some(thick_bytes(size_bytes, dataset.get(Property::VolBlockSize).0))
}

impl Node {
    /// Replaces `refreservation=auto` by what the volume could need.
    pub(crate) fn with_thick(
        &self,
        dataset: &Dataset,
        values: &[(String, Option<String>)],
    ) -> Result<Vec<(String, Option<String>)>, Failure> {
        let of = |(name, value): &(String, Option<String>)| match (name.as_str(), value.as_deref()) {
            (NAME, Some(AUTO)) => {
                let bytes = Some(dataset).filter(|of| of.kind() == DatasetKind::Volume).and_then(whole_bytes);
                let text = format!("{} is no volume, and has no {NAME}", dataset.name());
                let bytes = bytes.ok_or_else(|| Failure::refuse(ErrorKind::Invalid, text))?;
                Ok((name.clone(), Some(bytes.to_string())))
            }
            _ => Ok((name.clone(), value.clone())),
        };
        values.iter().map(of).collect()
    }

    /// If a volume was thick with its old size, what it is to have with the new one.
    pub(crate) fn thick_after_resize(&self, dataset: &Dataset, size_bytes: u64) -> Option<u64> {
        let (thick, _) = dataset.get(Property::RefReservation);
        let is_whole = thick > 0 && whole_bytes(dataset) == Some(thick);
        is_whole.then(|| thick_bytes(size_bytes, dataset.get(Property::VolBlockSize).0))
    }

    pub(crate) fn set_thick(&self, dataset: &Dataset, bytes: u64) -> Result<(), Failure> {
        let values = [(Property::RefReservation, Some(bytes))];
        self.change(|tx| dataset.set_all(tx, &values, &[]))
    }

    /// By how much the volumes without room of their own could outgrow what is free for them.
    pub(crate) fn overcommitted_bytes(&self) -> u64 {
        let pool = self.pool();
        let mut wanted_bytes = 0_u64;
        for info in pool.datasets().iter().filter(|info| info.kind == DatasetKind::Volume) {
            let Ok(dataset) = pool.dataset(&info.name) else { continue };
            // What is kept for a thick one is not free for others.
            if dataset.get(Property::RefReservation).0 == 0 {
                let whole = whole_bytes(&dataset).unwrap_or(0);
                let shown = dataset.shown_bytes().unwrap_or(0);
                wanted_bytes = wanted_bytes.saturating_add(whole.saturating_sub(shown));
            }
        }
        let free_bytes = pool.dataset(&pool.name()).map_or(0, |root| root.available_bytes().0);
        wanted_bytes.saturating_sub(free_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_what_a_volume_could_need() {
        let of = |words: &[(&str, &str)]| {
            let words: Vec<_> = words.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            of_new_volume(&words, 1 << 20)
                .map(|all| all.into_iter().map(|(_, value)| value).collect::<Vec<_>>())
        };
        assert_eq!(of(&[(NAME, AUTO)]).unwrap(), ["1048576"]);
        assert_eq!(of(&[(NAME, AUTO), ("volblocksize", "512")]).unwrap(), ["8388608", "512"]);
        assert_eq!(of(&[(NAME, "4M"), ("sync", AUTO)]).unwrap(), ["4M", AUTO]);
        assert!(of(&[(NAME, AUTO), ("volblocksize", "5")]).is_err());
    }
}
