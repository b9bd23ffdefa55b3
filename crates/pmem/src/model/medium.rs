//! A medium that is as fast as the model.

use std::ptr::NonNull;
use std::sync::Arc;

use super::device::DeviceModel;
use super::profile::Node;
use crate::medium::{Medium, PersistError, ReadError, Summer};
use crate::slots::WriterSlots;
use crate::view::View;

/// A range whose copies take as long as on a modelled device. What it stores, and what is durable when, is
/// the range's own.
#[derive(Debug)]
pub struct Modelled<M> {
    range: M,
    device: Arc<DeviceModel>,
    node: Node,
}

impl<M: Medium> Modelled<M> {
    /// A range on a device, written by threads that run there.
    pub fn new(range: M, device: Arc<DeviceModel>, node: Node) -> Modelled<M> {
        Modelled { range, device, node }
    }

    /// The device.
    pub fn device(&self) -> &Arc<DeviceModel> {
        &self.device
    }

    /// The range again.
    pub fn into_range(self) -> M {
        self.range
    }
}

/// A second view of a range that takes as long to read from as a modelled device.
pub struct ModelledView {
    view: Arc<dyn View>,
    device: Arc<DeviceModel>,
}

impl ModelledView {
    /// A view of a range on a device.
    pub fn new(view: Arc<dyn View>, device: Arc<DeviceModel>) -> ModelledView {
        ModelledView { view, device }
    }
}

impl std::fmt::Debug for ModelledView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelledView").field("device", &self.device).finish_non_exhaustive()
    }
}

impl View for ModelledView {
    fn read(&self, region_offset: u64, dst: &mut [u8]) -> Result<(), ReadError> {
        let len_bytes = dst.len();
        self.device.read(len_bytes, || self.view.read(region_offset, dst))
    }
}

impl<M: Medium> Medium for Modelled<M> {
    fn len_bytes(&self) -> usize {
        self.range.len_bytes()
    }

    fn region_offset(&self) -> u64 {
        self.range.region_offset()
    }

    fn copy<S: Summer>(&mut self, offset: usize, src: &[u8], extent_bytes: usize, summer: &mut S) {
        let at = self.range.region_offset() + offset as u64;
        let range = &mut self.range;
        self.device.write(self.node, at, extent_bytes, || range.copy(offset, src, extent_bytes, summer));
    }

    /// What an engine stores there takes the engine's time.
    fn mapped(&mut self, offset: usize, len_bytes: usize) -> Option<NonNull<u8>> {
        self.range.mapped(offset, len_bytes)
    }

    fn lose(&mut self, offset: usize) {
        self.range.lose(offset);
    }

    fn writer_slots(&self) -> Option<Arc<WriterSlots>> {
        self.range.writer_slots()
    }

    fn write_back(&mut self, offset: usize, len_bytes: usize) {
        // PERSIST: the range's own.
        self.range.write_back(offset, len_bytes);
    }

    fn fence(&mut self) -> Result<(), PersistError> {
        // PERSIST: the range's own; nothing is added to what its caller relies on.
        self.range.fence()
    }

    fn check(&self) -> Result<(), PersistError> {
        self.range.check()
    }

    fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), ReadError> {
        self.range.read(offset, dst)
    }

    fn sides(&self) -> usize {
        self.range.sides()
    }

    fn lost_side(&self) -> Option<usize> {
        self.range.lost_side()
    }

    fn read_side(&self, side: usize, offset: usize, dst: &mut [u8]) -> Result<(), ReadError> {
        self.range.read_side(side, offset, dst)
    }

    fn copy_side(&mut self, side: usize, offset: usize, src: &[u8], extent_bytes: usize) {
        let at = self.range.region_offset() + offset as u64;
        let range = &mut self.range;
        self.device.write(self.node, at, extent_bytes, || range.copy_side(side, offset, src, extent_bytes));
    }
}
