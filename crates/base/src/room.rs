//! A map that keeps what is gone for a while.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::{Deref, DerefMut};

/// A map with entries that need not stay: [`make_room`](Self::make_room) drops them now and then.
#[derive(Debug)]
pub struct Roomy<K, V, S = RandomState> {
    map: HashMap<K, V, S>,
    /// Entries at which to look for some to drop.
    full_at: usize,
}

impl<K, V, S: Default> Default for Roomy<K, V, S> {
    fn default() -> Roomy<K, V, S> {
        Roomy { map: HashMap::default(), full_at: 0 }
    }
}

impl<K, V, S> Deref for Roomy<K, V, S> {
    type Target = HashMap<K, V, S>;

    fn deref(&self) -> &HashMap<K, V, S> {
        &self.map
    }
}

impl<K, V, S> DerefMut for Roomy<K, V, S> {
    fn deref_mut(&mut self) -> &mut HashMap<K, V, S> {
        &mut self.map
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> Roomy<K, V, S> {
    /// To be called before an entry is added to what may be `entries_min` entries or more. Drops those that
    /// need not stay, once there are twice as many as the last time left: so each entry that is added costs a
    /// constant number of looks at others, however many have to stay. Returns the number of looks.
    pub fn make_room(&mut self, entries_min: usize, stays: impl Fn(&V) -> bool) -> usize {
        let looks = self.map.len();
        if looks < self.full_at.max(entries_min) {
            return 0;
        }
        self.map.retain(|_, value| stays(value));
        self.full_at = 2 * self.map.len();
        looks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: usize = 1000;

    /// Adds so many entries, of which one in so many has to stay; the looks, and what is left.
    fn looks(entries: usize, one_in: usize) -> (usize, usize) {
        let (mut map, mut looks) = (Roomy::<_, _>::default(), 0);
        for number in 0..entries {
            looks += map.make_room(MIN, |stays| *stays);
            map.insert(number, number % one_in == 0);
        }
        (looks, map.len())
    }

    #[test]
    fn an_entry_costs_few_looks_however_many_stay() {
        for one_in in [1, 2, 3, 10, 1_000_000] {
            let (looks, _) = looks(200_000, one_in);
            assert!(looks <= 2 * 200_000, "one in {one_in} stays: {looks} looks");
        }
        assert_eq!(looks(MIN, 1).0, 0);
    }

    #[test]
    fn what_need_not_stay_goes() {
        let (_, left) = looks(200_000, 1_000_000);
        assert!(left <= MIN + 1, "{left} entries are left");
    }
}
