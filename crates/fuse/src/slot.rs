//! The memory of a place in a ring: a request in, its answer out.
//!
//! Layout of the head, `struct fuse_uring_req_header`: the head of the request or answer (128 bytes), its
//! arguments of fixed length (128), flags (8), the number of the request (8), the length of the payload (4),
//! padding (12). The payload has the other arguments, or the answer after its head.

use crate::answer::{ANSWER_BYTES_MAX, Answer, Memory};
use crate::files::Reply;
use crate::wire::READ_BYTES_MAX;
use crate::wire::{Head, IN_HEADER_BYTES, Input, OUT_HEADER_BYTES};

const HEAD_BYTES: usize = 288;
/// After the head.
const PARTS_BYTES: usize = 32;
const PAYLOAD_BYTES: usize = READ_BYTES_MAX;
const ARGUMENTS: usize = 128;
const ARGUMENTS_BYTES_MAX: usize = 128;
const UNIQUE: usize = 264;
const PAYLOAD_LEN: usize = 272;

/// A place's memory. The kernel knows its addresses: it stays where it is.
#[derive(Debug)]
pub(crate) struct Slot {
    head: Memory,
    /// The payload, after the room of an answer's head, so that an answer can be built here.
    answer: Memory,
    is_lent: bool,
    /// The queue that it belongs to: the number of a CPU.
    pub(crate) queue: u16,
}

impl Slot {
    pub(crate) fn new(queue: u16) -> Slot {
        let (head, answer) = (Memory::new(HEAD_BYTES + PARTS_BYTES), Memory::new(ANSWER_BYTES_MAX));
        Slot { head, answer, is_lent: false, queue }
    }

    /// Where this memory is, for the kernel: the address of two addresses with lengths (`struct iovec`),
    /// of the head
    /// and of the payload.
    pub(crate) fn parts(&mut self) -> u64 {
        let payload = self.answer[OUT_HEADER_BYTES..].as_mut_ptr();
        let words = [self.head.as_mut_ptr() as u64, HEAD_BYTES as u64, payload as u64, PAYLOAD_BYTES as u64];
        for (bytes, word) in self.head[HEAD_BYTES..].chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        self.head[HEAD_BYTES..].as_ptr() as u64
    }

    fn word(&self, at: usize) -> usize {
        u32::from_ne_bytes(*self.head[at..].first_chunk().expect("within the head")) as usize
    }

    /// The number of the request, by which the kernel finds this place.
    pub(crate) fn unique(&self) -> u64 {
        u64::from_ne_bytes(*self.head[UNIQUE..].first_chunk().expect("within the head"))
    }

    /// The request; `None`: its lengths do not fit together.
    pub(crate) fn request(&self) -> Option<(Head, Input<'_>)> {
        let (len, payload_len) = (self.word(0), self.word(PAYLOAD_LEN));
        let arguments_len = len.checked_sub(IN_HEADER_BYTES)?.checked_sub(payload_len)?;
        if arguments_len > ARGUMENTS_BYTES_MAX || payload_len > PAYLOAD_BYTES {
            return None;
        }
        let arguments = &self.head[ARGUMENTS..][..arguments_len];
        // Without one the memory may be lent, and is not looked at.
        let payload = if payload_len == 0 { &[] } else { &self.answer[OUT_HEADER_BYTES..][..payload_len] };
        Input::parts(&self.head[..IN_HEADER_BYTES], arguments, payload)
    }

    /// Gives an answer this memory, if the request does not lie there.
    pub(crate) fn lend(&mut self, answer: &mut Answer) {
        if !self.is_lent && self.word(PAYLOAD_LEN) == 0 {
            answer.swap_memory(&mut self.answer);
            self.is_lent = true;
        }
    }

    /// Takes an answer, from this memory or from another one.
    pub(crate) fn put(&mut self, answer: &mut Answer, unique: u64, result: Reply<()>) {
        let len = answer.finish(unique, result).len();
        if std::mem::take(&mut self.is_lent) {
            answer.swap_memory(&mut self.answer);
        } else {
            self.answer[..len].copy_from_slice(answer.so_far());
        }
        self.head[..OUT_HEADER_BYTES].copy_from_slice(&self.answer[..OUT_HEADER_BYTES]);
        let payload_len = (len - OUT_HEADER_BYTES) as u32;
        self.head[PAYLOAD_LEN..][..4].copy_from_slice(&payload_len.to_ne_bytes());
    }

    /// Ends the loan of an answer that was not finished; what it has so far goes with it.
    pub(crate) fn end_loan(&mut self, answer: &mut Answer) {
        if std::mem::take(&mut self.is_lent) {
            answer.swap_memory(&mut self.answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;
    use crate::wire;

    /// A slot with a request as the kernel would have put it there.
    fn slot(len: usize, arguments: &[u8], payload: &[u8]) -> Slot {
        let mut slot = Slot::new(3);
        slot.head[..4].copy_from_slice(&(len as u32).to_ne_bytes());
        slot.head[4..8].copy_from_slice(&wire::WRITE.to_ne_bytes());
        slot.head[8..16].copy_from_slice(&6_u64.to_ne_bytes());
        slot.head[ARGUMENTS..][..arguments.len()].copy_from_slice(arguments);
        slot.head[UNIQUE..][..8].copy_from_slice(&6_u64.to_ne_bytes());
        slot.head[PAYLOAD_LEN..][..4].copy_from_slice(&(payload.len() as u32).to_ne_bytes());
        slot.answer[OUT_HEADER_BYTES..][..payload.len()].copy_from_slice(payload);
        slot
    }

    #[test]
    fn a_request_is_read_from_its_parts_and_lengths_are_checked() {
        let whole = slot(IN_HEADER_BYTES + 4 + 2, &[7, 0, 0, 0], b"a\0");
        let (head, mut input) = whole.request().unwrap();
        assert_eq!(
            (head.opcode, head.unique, input.u32(), input.name()),
            (wire::WRITE, 6, Ok(7), Ok(&b"a"[..]))
        );
        for len in [0, IN_HEADER_BYTES - 1, IN_HEADER_BYTES + 1, IN_HEADER_BYTES + 2 + 129, usize::MAX >> 33]
        {
            assert!(slot(len, &[], b"a\0").request().is_none(), "{len}");
        }
        assert!(slot(IN_HEADER_BYTES + 2 + 128, &[], b"a\0").request().is_some());
        let mut long = slot(0, &[], &[]);
        let payload_len = PAYLOAD_BYTES as u32 + 1;
        long.head[PAYLOAD_LEN..][..4].copy_from_slice(&payload_len.to_ne_bytes());
        long.head[..4].copy_from_slice(&(payload_len + IN_HEADER_BYTES as u32).to_ne_bytes());
        assert!(long.request().is_none());
    }

    fn answered(slot: &Slot) -> (&[u8], &[u8]) {
        let len = slot.word(PAYLOAD_LEN);
        (&slot.head[..OUT_HEADER_BYTES], &slot.answer[OUT_HEADER_BYTES..][..len])
    }

    #[test]
    fn an_answer_lies_where_the_kernel_reads_it_whether_its_memory_was_lent_or_not() {
        for payload in [&b""[..], b"a\0"] {
            let mut slot = slot(IN_HEADER_BYTES + payload.len(), &[], payload);
            let (place, mut answer) = (slot.answer.as_ptr(), Answer::default());
            slot.lend(&mut answer);
            assert_eq!(slot.is_lent, payload.is_empty(), "bytes of the request are not overwritten");
            assert!(slot.request().is_some());
            answer.start().bytes(b"answer");
            slot.put(&mut answer, 6, Ok(()));
            let (head, body) = answered(&slot);
            assert_eq!((head[..4].to_vec(), body), (22_u32.to_ne_bytes().to_vec(), &b"answer"[..]));
            assert_eq!(slot.answer.as_ptr(), place, "the kernel knows its address");
            // An error has no body.
            slot.put(answer.start().bytes(b"xx"), 6, Err(Errno::IO));
            assert_eq!(answered(&slot).1, b"");
        }
    }

    #[test]
    fn a_loan_ends_with_what_is_put_off() {
        let (mut slot, mut answer) = (slot(IN_HEADER_BYTES, &[], &[]), Answer::default());
        let place = slot.answer.as_ptr();
        slot.lend(&mut answer);
        assert_ne!(slot.answer.as_ptr(), place);
        slot.end_loan(&mut answer);
        assert_eq!(slot.answer.as_ptr(), place);
    }

    #[test]
    fn the_kernel_is_told_of_both_parts() {
        let mut slot = Slot::new(0);
        let at = slot.parts() - slot.head.as_ptr() as u64;
        let words: Vec<u64> = slot.head[at as usize..]
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
            .collect();
        let payload = slot.answer[OUT_HEADER_BYTES..].as_ptr() as u64;
        assert_eq!(words, [slot.head.as_ptr() as u64, 288, payload, 1 << 20]);
    }
}
