use super::*;

/// Memory with a table of code at 0xffff_0000: three functions, and a stack.
#[derive(Default)]
struct Memory(Vec<(u64, Vec<u8>)>);

const BEGINS: u64 = 0xffff_8000_0000_0000;
const ENTRIES: u64 = BEGINS + 0x1000;
const STACK: u64 = BEGINS + 0x8000;
const CODE: u64 = BEGINS + 0x10_0000;

impl Memory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        let found = self.0.iter().find_map(|(start, bytes)| {
            let from = usize::try_from(address.checked_sub(*start)?).ok()?;
            bytes.get(from..from + buffer.len())
        });
        found.map(|bytes| buffer.copy_from_slice(bytes)).is_some()
    }

    fn words(&mut self, at: u64, words: &[u64]) {
        self.0.push((at, words.iter().flat_map(|word| word.to_le_bytes()).collect()));
    }

    /// Functions, each with its distance from `CODE`, and its entry: offsets and flags.
    fn table(&mut self, functions: &[(u64, i16, i16, u16)]) {
        let distance = |(index, function): (u64, &(u64, i16, i16, u16))| {
            ((CODE + function.0).wrapping_sub(BEGINS + 4 * index) as i32).to_le_bytes()
        };
        let mut begins: Vec<u8> = (0..).zip(functions).flat_map(distance).collect();
        begins.resize(PAGE_BYTES, 0);
        self.0.push((BEGINS, begins));
        let entry = |(_, sp, bp, flags): &(u64, i16, i16, u16)| {
            [sp.to_le_bytes(), bp.to_le_bytes(), flags.to_le_bytes()].concat()
        };
        self.0.push((ENTRIES, functions.iter().flat_map(entry).collect()));
    }

    fn walk(&self, format: &str, most: u64, pc: u64, sp: u64, bp: u64) -> Vec<u64> {
        let orc = Orc::parse(&format!("{format}\n{BEGINS:#x} {ENTRIES:#x} {most}\n")).unwrap();
        orc.walk(pc, sp, bp, &mut |address, buffer| self.read(address, buffer)).as_slice().to_vec()
    }
}

const OLDER: Numbers = NUMBERS[0];
/// Flags of a call whose stack is by `rsp`, in the new format.
const CALL: u16 = 2 << 8 | OLDER.sp;

#[test]
fn frames_are_found_by_the_tables_alone() {
    for Numbers { sp, bp, previous_sp, .. } in NUMBERS {
        let mut memory = Memory::default();
        // The first keeps nothing, the second has saved rbp, the third finds its stack by that, the last is
        // the end.
        memory.table(&[
            (0, 8, 0, 2 << 8 | sp),
            (0x100, 32, -16, 2 << 8 | previous_sp << 4 | sp),
            (0x200, 16, 0, 2 << 8 | bp),
            (0x300, 0, 0, 1 << 8),
        ]);
        let frame = STACK + 80;
        memory.words(STACK, &[CODE + 0x150, 0, 0, frame, CODE + 0x250]);
        memory.words(frame + 8, &[CODE + 0x300, 0]);
        assert_eq!(memory.walk("new", 4, CODE + 7, STACK, 1), [CODE + 0x150, CODE + 0x250, CODE + 0x300]);
        assert_eq!(memory.walk("new", 1, CODE + 7, STACK, 1), [CODE + 0x150], "of one element");
        assert_eq!(memory.walk("new", 4, CODE - 1, STACK, 1), [0; 0], "before all code");
    }
}

#[test]
fn a_call_may_be_the_end_of_its_function() {
    let mut memory = Memory::default();
    memory.table(&[(0, 8, 0, CALL), (0x100, 8, 0, CALL), (0x200, 0, 0, 1 << 8)]);
    memory.words(STACK, &[CODE + 0x200, CODE + 0x20, 0]);
    assert_eq!(memory.walk("new", 3, CODE + 7, STACK, 1), [CODE + 0x200, CODE + 0x20]);
}

#[test]
fn an_interrupt_is_passed_and_a_program_is_the_end() {
    let mut memory = Memory::default();
    memory.table(&[(0, 8, 0, 3 << 8 | OLDER.sp), (0x100, 8, 0, CALL)]);
    let mut registers = vec![0; 21];
    registers[SAVED_IP as usize / 8] = CODE + 0x180;
    registers[SAVED_SP as usize / 8] = STACK + 0x400;
    memory.words(STACK + 8, &registers);
    memory.words(STACK + 0x400, &[0x40_0000]);
    assert_eq!(memory.walk("new", 2, CODE, STACK, 0), [CODE + 0x180]);
}

#[test]
fn the_older_format_and_stacks_by_memory() {
    let Numbers { sp, sp_indirect, bp_indirect, .. } = OLDER;
    let mut memory = Memory::default();
    memory.table(&[(0, 16, 0, sp_indirect), (0x100, -8, 0, bp_indirect), (0x200, 8, 0, 2 << 8 | sp)]);
    memory.words(STACK, &[STACK + 0x100, STACK + 0x208]);
    memory.words(STACK + 0x108, &[CODE + 0x110]);
    memory.words(STACK + 0x200, &[CODE + 0x210]);
    // Type 2 was something else then.
    assert_eq!(memory.walk("old", 3, CODE, STACK, STACK + 16), [CODE + 0x110, CODE + 0x210]);
}

#[test]
fn stacks_that_go_round_or_are_not_there_end() {
    let mut memory = Memory::default();
    memory.table(&[(0, 0, 0, CALL)]);
    memory.words(STACK - 8, &[CODE]);
    assert_eq!(memory.walk("new", 1, CODE, STACK, 0), [0; 0]);
    let mut memory = Memory::default();
    memory.table(&[(0, 8, 0, CALL)]);
    assert_eq!(memory.walk("new", 1, CODE, STACK, 0), [0; 0]);
    assert_eq!(memory.walk("new", 1, CODE, u64::MAX, 0), [0; 0]);
    memory.words(STACK, &[CODE + 16; 100]);
    assert_eq!(memory.walk("new", 1, CODE, STACK, 0).len(), fastness_crashcheck_trace::STACK_MAX);
}

#[test]
fn a_table_ends_where_it_does_not_ascend() {
    let mut memory = Memory::default();
    memory.table(&[(0, 8, 0, CALL), (0x100, 8, 0, CALL), (0x80, 8, 0, 0)]);
    memory.words(STACK, &[CODE + 0x170, 0x40_0000]);
    assert_eq!(memory.walk("new", 1000, CODE + 0x190, STACK, 0), [CODE + 0x170]);
}

#[test]
fn what_is_no_list_of_tables_is_refused() {
    for (text, line) in [
        ("", 1),
        ("newer\n", 1),
        ("new\n0x1 0x2\n", 2),
        ("old\n0x1 0x2 3\n1 2 3\n", 3),
        ("new\n0x1 0x2 3 4\n", 2),
        ("new\n0x1 0x2 99999999999\n", 2),
    ] {
        assert!(matches!(Orc::parse(text), Err(OrcError::Line(found)) if found == line), "{text:?}");
    }
    assert!(Orc::parse("new\n").is_ok());
}
