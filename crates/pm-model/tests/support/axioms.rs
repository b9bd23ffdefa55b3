//! The rules as relations between pieces; all subsets are tried.

use fastness_pm_model::{Config, FenceKind, FlushKind, Op, Persistence, Rules};

use super::Images;

const LINE: usize = 64;

struct Piece {
    op: usize,
    cpu: u32,
    addr: usize,
    bytes: Vec<u8>,
    nt: bool,
}

impl Piece {
    fn line(&self) -> usize {
        self.addr / LINE
    }
}

/// All images after a crash at the end of `ops`, starting from zeroes.
pub(crate) fn crash_images(size: usize, ops: &[Op], config: Config) -> Images {
    crash_images_on(size, ops, &vec![0; ops.len()], config)
}

/// The same, where each operation has its processor.
pub(crate) fn crash_images_on(size: usize, ops: &[Op], cpus: &[u32], config: Config) -> Images {
    let pieces = pieces(ops, cpus);
    assert!(pieces.len() <= 20, "too many subsets to try");
    let certain = certain(&pieces, ops, cpus, config);
    (0..1_u32 << pieces.len())
        .filter(|subset| subset & certain == certain && is_allowed(*subset, &pieces, (ops, cpus), config))
        .map(|subset| {
            let mut image = vec![0; size];
            for (_, piece) in members(subset, &pieces) {
                image[piece.addr..piece.addr + piece.bytes.len()].copy_from_slice(&piece.bytes);
            }
            image
        })
        .collect()
}

fn members(subset: u32, pieces: &[Piece]) -> impl Iterator<Item = (usize, &Piece)> {
    pieces.iter().enumerate().filter(move |(index, _)| subset >> index & 1 == 1)
}

fn pieces(ops: &[Op], cpus: &[u32]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (op, what) in ops.iter().enumerate() {
        let (addr, data, nt, unit) = match what {
            Op::Store { addr, data, nt, atomic64 } => (addr, data, *nt, if *atomic64 { LINE } else { 8 }),
            Op::Rmw { addr, data } => (addr, data, false, 8),
            _ => continue,
        };
        let addr = *addr as usize;
        let cut = |at: usize| at == 0 || (addr + at).is_multiple_of(unit);
        let starts: Vec<_> = (0..data.len()).filter(|&at| cut(at)).chain([data.len()]).collect();
        for pair in starts.windows(2) {
            pieces.push(Piece {
                op,
                cpu: cpus[op],
                addr: addr + pair[0],
                bytes: data[pair[0]..pair[1]].to_vec(),
                nt,
            });
        }
    }
    pieces
}

fn is_fence(op: &Op) -> bool {
    matches!(op, Op::Fence(FenceKind::Sfence | FenceKind::Mfence) | Op::Rmw { .. })
}

/// R4, R6, R9, R10, R13: what has persisted for certain, without what R2 and R5 add to it.
fn certain(pieces: &[Piece], ops: &[Op], cpus: &[u32], config: Config) -> u32 {
    let flushes =
        |op: usize, line: usize| matches!(ops[op], Op::Flush { addr, .. } if addr as usize / LINE == line);
    let fence_behind =
        |op: usize, cpu: u32| (op + 1..ops.len()).any(|at| is_fence(&ops[at]) && cpus[at] == cpu);
    let is_certain = |piece: &Piece| {
        let eadr = config.persistence == Persistence::Eadr;
        if eadr && matches!(ops[piece.op], Op::Rmw { .. }) {
            return true;
        }
        if piece.nt {
            return fence_behind(piece.op, piece.cpu);
        }
        if eadr {
            return ops[piece.op + 1..].iter().any(is_fence);
        }
        (piece.op + 1..ops.len()).any(|at| flushes(at, piece.line()) && fence_behind(at, cpus[at]))
    };
    let bits = pieces.iter().enumerate().filter(|(_, piece)| is_certain(piece));
    let certain = bits.map(|(index, _)| 1 << index).sum();
    close(certain, |a, b| same_line_before(a, b, config), pieces)
}

/// Adds to `subset` all pieces that are before one of its members.
fn close(subset: u32, before: impl Fn(&Piece, &Piece) -> bool, pieces: &[Piece]) -> u32 {
    let mut closed = subset;
    loop {
        let missing = pieces.iter().enumerate().filter(|(index, piece)| {
            closed >> index & 1 == 0 && members(closed, pieces).any(|(_, member)| before(piece, member))
        });
        let more: u32 = missing.map(|(index, _)| 1 << index).sum();
        if more == 0 {
            return closed;
        }
        closed |= more;
    }
}

/// R2.
fn same_line_before(a: &Piece, b: &Piece, config: Config) -> bool {
    a.op < b.op && a.line() == b.line() && !(config.strict_nt && a.nt && b.nt && a.cpu == b.cpu)
}

fn is_allowed(subset: u32, pieces: &[Piece], (ops, cpus): (&[Op], &[u32]), config: Config) -> bool {
    let in_line = |a: &Piece, b: &Piece| same_line_before(a, b, config);
    match (config.persistence, config.rules) {
        (Persistence::Eadr, _) => {
            // R9.
            let global = |a: &Piece, b: &Piece| a.op < b.op && !a.nt && !b.nt;
            close(subset, |a, b| in_line(a, b) || global(a, b), pieces) == subset
        }
        (Persistence::Adr, Rules::Arch) => {
            // R5, R13: a `clflush` of the line of `a` between `a` and the cached store `b`.
            let flushes = |at: usize, a: &Piece| {
                let Op::Flush { kind: FlushKind::Clflush, addr } = ops[at] else { return false };
                addr as usize / LINE == a.line() && !(a.nt && a.cpu != cpus[at])
            };
            let flushed_before =
                |a: &Piece, b: &Piece| a.op < b.op && !b.nt && (a.op..b.op).any(|at| flushes(at, a));
            close(subset, |a, b| in_line(a, b) || flushed_before(a, b), pieces) == subset
        }
        (Persistence::Adr, Rules::Dissertation) => is_prefix_and_lines(subset, pieces, (ops, cpus), config),
    }
}

/// R11: there are a point in the program, not before the last fence, and a set of lines, such that the
/// image has just the cached stores of these lines up to the point, and non-temporal stores as R2 lets it.
/// Stores that a fence has completed are in every image.
fn is_prefix_and_lines(subset: u32, pieces: &[Piece], (ops, cpus): (&[Op], &[u32]), config: Config) -> bool {
    let certain = certain(pieces, ops, cpus, config);
    let pending = |index: usize| certain >> index & 1 == 0;
    let last_fence = ops.iter().rposition(is_fence);
    let missing = || (0..pieces.len()).filter(|&index| pending(index) && subset >> index & 1 == 0);
    let present = || (0..pieces.len()).filter(|&index| pending(index) && subset >> index & 1 == 1);
    if close(subset, |a, b| same_line_before(a, b, config), pieces) != subset {
        return false;
    }
    let has_line = |line: usize| present().any(|index| pieces[index].line() == line);
    // The line may also be chosen with all of its stores after the point; then it looks left out.
    (0..=ops.len()).any(|point| {
        let reaches = |piece: &Piece| piece.op < point || last_fence.is_some_and(|fence| piece.op < fence);
        let cached_fit =
            present().all(|index| pieces[index].nt || piece_at_most(&pieces[index], point, last_fence));
        cached_fit
            && missing().all(|index| {
                let piece = &pieces[index];
                piece.nt || !has_line(piece.line()) || !reaches(piece)
            })
    })
}

/// Whether a cached piece can be there if the prefix ends with a possibly torn store at `point`.
fn piece_at_most(piece: &Piece, point: usize, last_fence: Option<usize>) -> bool {
    piece.op <= point || last_fence.is_some_and(|fence| piece.op < fence)
}
