//! What must be there after a crash.

use super::*;

/// What the threads have done: operations in the order in which they were assigned, and what each commit
/// covered.
#[derive(Debug, Default)]
pub struct History {
    pub ops: Vec<Op>,
    pub commits: Vec<Vec<usize>>,
}

pub fn touches(op: &Op, object: u64) -> bool {
    match op {
        Op::Create(_, of) | Op::Remove(_, of) | Op::Rename(_, _, of) => *of == object || object == ROOT.0,
        Op::Write(of, ..) | Op::Truncate(of, _) | Op::Zeroes(of, ..) => *of == object,
    }
}

pub fn is_there(op: &Op, contents: &Contents) -> Result<bool, String> {
    match op {
        Op::Create(name, object) => Ok(contents.names.get(*name) == Some(object)),
        Op::Write(object, offset, data) => {
            let bytes = contents.objects.get(object).map_or(&[][..], Vec::as_slice);
            let found = bytes.get(*offset..offset + data.len()).unwrap_or_default();
            if found == data {
                return Ok(true);
            }
            if found.iter().all(|&byte| byte == 0) { Ok(false) } else { Err(format!("torn: {op:?}")) }
        }
        other => panic!("not used here: {other:?}"),
    }
}

impl History {
    /// What a commit of the object covers of what has happened so far; returns its number.
    pub fn commit(&mut self, object: u64) -> u64 {
        let is_covered = |op: &Op| object == 0 || touches(op, object) || matches!(op, Op::Create(..));
        self.commits.push((0..self.ops.len()).filter(|&i| is_covered(&self.ops[i])).collect());
        self.commits.len() as u64 - 1
    }

    /// Whether what these commits covered is there, each operation whole or not at all, and of those that
    /// touch one object a prefix.
    pub fn explains(&self, commits: &[u64], found: &Contents) -> Result<(), String> {
        let there = self.ops.iter().map(|op| is_there(op, found)).collect::<Result<Vec<_>, _>>()?;
        for &commit in commits {
            if let Some(&lost) = self.commits[commit as usize].iter().find(|&&op| !there[op]) {
                return Err(format!("commit {commit} lost {:?}", self.ops[lost]));
            }
        }
        for object in [1, 2, 3, 10, 11, 12, 13, ROOT.0] {
            let of: Vec<bool> =
                (0..there.len()).filter(|&i| touches(&self.ops[i], object)).map(|i| there[i]).collect();
            if of.windows(2).any(|pair| !pair[0] && pair[1]) {
                return Err(format!("object {object}: {of:?} is no prefix of {:?}", self.ops));
            }
        }
        Ok(())
    }
}
