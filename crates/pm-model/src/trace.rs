//! A program that has run: what PM held before, and the operations.

use crate::op::Op;

/// Initial contents of PM and the operations performed on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// PM before the first operation.
    pub initial: Vec<u8>,
    /// The operations in program order.
    pub ops: Vec<Op>,
}

impl Trace {
    /// The same trace without the operation at `index`; to show that a test notices a missing fence or flush.
    ///
    /// # Panics
    /// If there is no operation at `index`.
    #[must_use]
    pub fn without_op(&self, index: usize) -> Self {
        let mut ops = self.ops.clone();
        ops.remove(index);
        Self { initial: self.initial.clone(), ops }
    }

    /// Indices of the fence instructions (not of locked operations and not of `lfence`).
    pub fn fences(&self) -> Vec<usize> {
        self.indices(|op| op.is_fence() && !matches!(op, Op::Rmw { .. }))
    }

    /// Indices of the flushes.
    pub fn flushes(&self) -> Vec<usize> {
        self.indices(|op| matches!(op, Op::Flush { .. }))
    }

    /// Indices of the marks.
    pub fn marks(&self) -> Vec<usize> {
        self.indices(|op| matches!(op, Op::Mark(_)))
    }

    fn indices(&self, wanted: impl Fn(&Op) -> bool) -> Vec<usize> {
        self.ops.iter().enumerate().filter(|(_, op)| wanted(op)).map(|(index, _)| index).collect()
    }
}
