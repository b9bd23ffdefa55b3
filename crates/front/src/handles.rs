//! What is open: by the number that the kernel gives back with each operation.

use std::fs::File;
use std::sync::Arc;

use fastness_fuse::{Errno, Reply};
use fastness_sync::{Mutex, RwLock};

use crate::descriptors::Opening;

/// Open files, or directories.
#[derive(Debug)]
pub(crate) struct Handles<T>(RwLock<Table<T>>);

#[derive(Debug)]
struct Table<T> {
    open: Vec<Option<Arc<T>>>,
    free: Vec<usize>,
}

impl<T> Default for Handles<T> {
    fn default() -> Handles<T> {
        Handles(RwLock::new(Table { open: Vec::new(), free: Vec::new() }))
    }
}

impl<T> Handles<T> {
    pub(crate) fn add(&self, opened: T) -> u64 {
        let mut table = fastness_sync::write(&self.0);
        let opened = Some(Arc::new(opened));
        if let Some(number) = table.free.pop() {
            table.open[number] = opened;
            return number as u64;
        }
        table.open.push(opened);
        table.open.len() as u64 - 1
    }

    pub(crate) fn get(&self, number: u64) -> Reply<Arc<T>> {
        let table = fastness_sync::read(&self.0);
        table.open.get(number as usize).and_then(Clone::clone).ok_or(Errno::BADF)
    }

    /// It is closed once nothing works with it any more.
    pub(crate) fn remove(&self, number: u64) -> Option<Arc<T>> {
        let mut table = fastness_sync::write(&self.0);
        let removed = table.open.get_mut(number as usize)?.take()?;
        table.free.push(number as usize);
        Some(removed)
    }
}

/// A directory that is open; the position is that of the listing under way.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    pub(crate) file: Mutex<File>,
    _opening: Opening,
}

impl OpenDirectory {
    pub(crate) fn new(file: File, opening: Opening) -> OpenDirectory {
        OpenDirectory { file: Mutex::new(file), _opening: opening }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_out_again_once_they_are_closed() {
        let handles = Handles::default();
        assert_eq!((handles.add('a'), handles.add('b')), (0, 1));
        assert_eq!((handles.remove(0).as_deref(), handles.remove(0)), (Some(&'a'), None));
        assert_eq!(handles.get(0).unwrap_err(), Errno::BADF);
        assert_eq!((handles.add('c'), handles.add('d')), (0, 2));
        assert_eq!(*handles.get(1).unwrap(), 'b');
        assert!(handles.remove(7).is_none());
    }
}
