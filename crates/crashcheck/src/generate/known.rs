//! Which images there were, by their hashes, in bounded memory.

use std::collections::HashMap;

use crate::image::ImageHash;

/// The first half of a hash: two images of a run that share it are no more likely than a wrong bit in memory.
type Key = [u8; 16];

fn key(hash: &ImageHash) -> Key {
    let mut key = Key::default();
    key.copy_from_slice(&hash.0[..16]);
    key
}

/// Most images of a generation: of an analysis 33 bytes each, 66 MiB, in a table that is full by seven
/// eighths.
pub const KNOWN_IMAGES: usize = (1 << 21) / 8 * 7;

/// What is known of the newest images, by hash.
///
/// There are two generations. When the newer one is full the older one is forgotten, so at least the last
/// `most` images that were put or found are known, and at most twice as many. An image that was forgotten is
/// taken for a new one.
#[derive(Debug)]
pub struct Known<T> {
    newer: HashMap<Key, T>,
    older: HashMap<Key, T>,
    most: usize,
    forgotten: u64,
}

impl<T> Known<T> {
    /// Nothing is known; `most` images fill a generation ([`KNOWN_IMAGES`]).
    pub fn new(most: usize) -> Known<T> {
        Known { newer: HashMap::new(), older: HashMap::new(), most: most.max(1), forgotten: 0 }
    }

    /// What is known of an image.
    pub fn get_mut(&mut self, hash: &ImageHash) -> Option<&mut T> {
        let key = key(hash);
        if let Some(old) = self.older.remove(&key) {
            self.put(hash, old);
        }
        self.newer.get_mut(&key)
    }

    /// Notes it; what was known of it before is gone.
    pub fn put(&mut self, hash: &ImageHash, value: T) {
        if self.newer.len() >= self.most && !self.newer.contains_key(&key(hash)) {
            // The table of the older one is used again.
            std::mem::swap(&mut self.newer, &mut self.older);
            self.forgotten += self.newer.len() as u64;
            self.newer.clear();
        }
        self.newer.insert(key(hash), value);
    }

    /// How many images were forgotten.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> ImageHash {
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&number.to_le_bytes());
        ImageHash(hash)
    }

    #[test]
    fn the_newest_are_known_and_memory_is_bounded() {
        let mut known = Known::new(10);
        for number in 0..1000 {
            assert_eq!(known.get_mut(&hash(number)), None);
            known.put(&hash(number), number);
            for before in number.saturating_sub(9)..=number {
                assert_eq!(known.get_mut(&hash(before)).copied(), Some(before), "after {number}");
            }
            assert!(known.newer.len() + known.older.len() <= 20);
        }
        let left = (known.newer.len() + known.older.len()) as u64;
        assert_eq!(known.forgotten() + left, 1000);
        *known.get_mut(&hash(999)).unwrap() = 7;
        assert_eq!(known.get_mut(&hash(999)).copied(), Some(7));
    }

    #[test]
    fn what_is_found_again_is_new_again() {
        let mut known = Known::new(4);
        for number in 0..100 {
            known.put(&hash(1000 + number), 0);
            if number == 0 {
                known.put(&hash(1), 1);
            }
            assert_eq!(known.get_mut(&hash(1)).copied(), Some(1), "after {number}");
        }
    }
}
