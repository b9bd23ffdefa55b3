//! All allowed images, each once.

use std::ops::ControlFlow;

use crate::labels::{Label, Labels};
use crate::machine::{Machine, line_of, put_line};
use crate::states::{State, line_states};

/// What an enumeration did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enumerated {
    /// Images handed out.
    pub images: usize,
    /// Every allowed image has been handed out; false if the visitor stopped before the last one.
    pub complete: bool,
}

/// There are more allowed images than the limit; none has been handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {limit} crash images are possible")]
pub struct TooMany {
    /// The limit given.
    pub limit: usize,
}

/// A line with more than one state.
struct Axis {
    line: u64,
    states: Vec<State>,
}

impl Machine {
    /// Calls `visit` for each allowed image exactly once; the minimal image comes first, and the order
    /// depends on nothing but the operations. Exact: see the crate documentation.
    ///
    /// # Errors
    /// [`TooMany`] if there are more than `limit` images; `visit` has not been called then.
    pub fn for_each_crash_image(
        &self,
        limit: usize,
        visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Enumerated, TooMany> {
        let too_many = TooMany { limit };
        let axes = self.axes(limit).ok_or(too_many)?;
        if self.context().is_ordered {
            let mut count = 0_usize;
            let _ = walk(&axes, &mut |_, _| {}, &mut || {
                count += 1;
                if count > limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            if count > limit {
                return Err(too_many);
            }
        }
        Ok(self.visit_all(&axes, visit))
    }

    /// The number of allowed images.
    ///
    /// # Errors
    /// [`TooMany`] if there are more than `limit`.
    pub fn count_crash_images(&self, limit: usize) -> Result<usize, TooMany> {
        self.for_each_crash_image(limit, &mut |_| ControlFlow::Continue(())).map(|done| done.images)
    }

    fn visit_all(&self, axes: &[Axis], visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Enumerated {
        let scratch = std::cell::RefCell::new(self.persistent_image().to_vec());
        let mut images = 0;
        let flow = walk(
            axes,
            &mut |axis, state| put_line(&mut scratch.borrow_mut(), axis.line, &state.bytes),
            &mut || {
                images += 1;
                visit(&scratch.borrow())
            },
        );
        Enumerated { images, complete: flow.is_continue() }
    }

    /// The lines with more than one state; `None` if that alone means more than `limit` images.
    ///
    /// Every state of a line occurs in an image: see [`walk`].
    fn axes(&self, limit: usize) -> Option<Vec<Axis>> {
        let context = self.context();
        let mut product = 1_usize;
        let mut axes = Vec::new();
        for (number, line) in self.lines() {
            let base = line_of(self.persistent_image(), number);
            let states = line_states(line, &base, context, limit).ok()?;
            product = product.saturating_mul(states.len());
            if !context.is_ordered && product > limit {
                return None;
            }
            if states.len() > 1 {
                axes.push(Axis { line: number, states });
            }
        }
        (limit > 0).then_some(axes)
    }
}

/// Calls `put` for every change of a line's state and `leaf` for every allowed combination.
///
/// There are no dead ends: if the states chosen so far fit together, then the next line has a state that
/// fits them, namely the smallest one that contains every store that they require. Its own cached stores
/// are not newer than those chosen. So the work is proportional to the number of images, and a line that
/// has only one distinct content never limits the others, and is left out.
fn walk(
    axes: &[Axis],
    put: &mut dyn FnMut(&Axis, &State),
    leaf: &mut dyn FnMut() -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut labels = vec![Labels::default(); axes.len() + 1];
    labels[0] = Labels::one(Label::FREE);
    let mut next = vec![0_usize; axes.len()];
    let mut depth = 0;
    loop {
        if depth == axes.len() {
            leaf()?;
        } else {
            let axis = &axes[depth];
            let (before, after) = labels.split_at_mut(depth + 1);
            let fits = axis.states[next[depth]..]
                .iter()
                .position(|state| after[0].set_product(&before[depth], &state.labels));
            if let Some(skipped) = fits {
                let chosen = next[depth] + skipped;
                put(axis, &axis.states[chosen]);
                next[depth] = chosen + 1;
                depth += 1;
                continue;
            }
            next[depth] = 0;
        }
        if depth == 0 {
            return ControlFlow::Continue(());
        }
        depth -= 1;
    }
}
