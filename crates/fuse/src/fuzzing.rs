//! Entry points for fuzzing: requests are decoded with the care that bytes from outside need.

use crate::answer::Answer;
use crate::dispatch::dispatch;
use crate::files::{Caller, Files};
use crate::request::RequestState;
use crate::wire::Input;

/// Longest answer in bytes.
pub const ANSWER_BYTES_MAX: usize = crate::answer::ANSWER_BYTES_MAX;

/// Answers a request as a session does, without a kernel; `None`: it is none, or expects no answer.
pub fn answer(files: &dyn Files, request: &[u8]) -> Option<Vec<u8>> {
    let (head, input) = Input::request(request)?;
    let (state, mut answer) = (RequestState::default(), Answer::default());
    state.begin(head.unique, false);
    let caller = Caller { uid: head.uid, gid: head.gid, pid: head.pid, state: &state };
    let result = dispatch(files, caller, &head, input, answer.start())?;
    Some(answer.finish(head.unique, result).to_vec())
}
