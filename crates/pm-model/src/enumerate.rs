//! All allowed images, each once.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;

use crate::labels::{Label, Labels};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::scope::{CrashImage, Scope};
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
    /// Every state of it is wanted; otherwise the first that fits.
    is_wanted: bool,
}

impl<M: Memory> Machine<M> {
    /// Calls `visit` for each allowed image of `scope` exactly once; the minimal image comes first, and the
    /// order depends on nothing but the operations. Exact: see the crate documentation.
    ///
    /// # Errors
    /// [`TooMany`] if there are more than `limit` images; `visit` has not been called then.
    pub fn enumerate(
        &self,
        scope: Scope<'_>,
        limit: usize,
        visit: &mut dyn FnMut(CrashImage<'_, M>) -> ControlFlow<()>,
    ) -> Result<Enumerated, TooMany> {
        let too_many = TooMany { limit };
        let axes = self.axes(scope, limit).ok_or(too_many)?;
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

    fn visit_all(
        &self,
        axes: &[Axis],
        visit: &mut dyn FnMut(CrashImage<'_, M>) -> ControlFlow<()>,
    ) -> Enumerated {
        let scratch = RefCell::new(self.persistent().clone());
        let has_nt: Vec<Cell<bool>> = axes.iter().map(|_| Cell::new(false)).collect();
        let mut images = 0;
        let flow = walk(
            axes,
            &mut |at, state| {
                scratch.borrow_mut().put_line(axes[at].line, &state.bytes);
                has_nt[at].set(state.nt.any);
            },
            &mut || {
                images += 1;
                visit(CrashImage { memory: &scratch.borrow(), has_nt: has_nt.iter().any(Cell::get) })
            },
        );
        Enumerated { images, complete: flow.is_continue() }
    }

    /// The lines with more than one state, those that are wanted first; `None` if that alone means more than
    /// `limit` images.
    ///
    /// Every state of a line that is wanted occurs in an image: see [`walk`]. Without an order across lines,
    /// a line that is not wanted stays as it is in the minimal image, and is no axis.
    fn axes(&self, scope: Scope<'_>, limit: usize) -> Option<Vec<Axis>> {
        let context = self.context();
        let mut product = 1_usize;
        let (mut axes, mut others) = (Vec::new(), Vec::new());
        for (number, line) in self.lines() {
            let is_wanted = scope.wants(number);
            if !is_wanted && !context.is_ordered {
                continue;
            }
            let base = self.persistent().line(number);
            let cap = if is_wanted { limit } else { usize::MAX };
            let mut states = line_states(line, &base, context, cap).ok()?;
            if is_wanted && scope.whole_nt {
                states.retain(|state| !state.nt.partial);
            }
            if is_wanted {
                product = product.saturating_mul(states.len());
            }
            if !context.is_ordered && product > limit {
                return None;
            }
            if states.len() > 1 {
                let axis = Axis { line: number, states, is_wanted };
                if is_wanted { axes.push(axis) } else { others.push(axis) }
            }
        }
        axes.append(&mut others);
        (limit > 0).then_some(axes)
    }
}

impl Machine {
    /// Calls `visit` for every allowed image: [`Machine::enumerate`] with all lines.
    ///
    /// # Errors
    /// [`TooMany`] if there are more than `limit` images; `visit` has not been called then.
    pub fn for_each_crash_image(
        &self,
        limit: usize,
        visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Enumerated, TooMany> {
        self.enumerate(Scope::default(), limit, &mut |image| visit(image.memory))
    }
}

/// Calls `put` for every change of a line's state and `leaf` for every allowed combination of the lines that
/// are wanted.
///
/// There are no dead ends: if the states chosen so far fit together, then the next line has a state that
/// fits them, namely the smallest one that contains every store that they require. Its own cached stores
/// are not newer than those chosen. So the work is proportional to the number of images, and a line that
/// has only one distinct content never limits the others, and is left out.
///
/// Two things that a [`Scope`] leaves out keep it so. A line that is not wanted takes the first state that
/// fits. And the states inside of a run of non-temporal stores have no part in the order across lines, beyond
/// the one that the run begins with.
fn walk(
    axes: &[Axis],
    put: &mut dyn FnMut(usize, &State),
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
                put(depth, &axis.states[chosen]);
                next[depth] = if axis.is_wanted { chosen + 1 } else { axis.states.len() };
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
