//! Random requests over several connections, against an array of bytes.

mod support;

use fastness_nbd::wire::{HeaderMode, command, command_flag};
use fastness_nbd::{Client, Request};
use proptest::prelude::*;
use support::{SIZE, Seen, World};

#[derive(Clone, Debug)]
enum Step {
    Read { offset: u64, length: u64, flags: u16 },
    Write { offset: u64, length: u64, value: u8, fua: bool },
    Clear { kind: u16, offset: u64, length: u64, flags: u16 },
    Flush,
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let range = (0..SIZE, prop_oneof![4 => 1u64..9000, 1 => 1u64..400_000])
        .prop_map(|(offset, length)| (offset, length.min(SIZE - offset)));
    let step = prop_oneof![
        3 => (range.clone(), any::<bool>())
            .prop_map(|((offset, length), df)| Step::Read { offset, length, flags: u16::from(df) * command_flag::DF }),
        3 => (range.clone(), any::<u8>(), any::<bool>())
            .prop_map(|((offset, length), value, fua)| Step::Write { offset, length, value, fua }),
        1 => (range.clone(), any::<bool>(), 0u16..4).prop_map(|((offset, length), is_trim, flags)| {
            let kind = if is_trim { command::TRIM } else { command::WRITE_ZEROES };
            Step::Clear { kind, offset, length, flags: if is_trim { flags & 1 } else { flags } }
        }),
        1 => Just(Step::Flush),
    ];
    (0..3usize, step)
}

/// What the export must have seen of a step.
fn expected(step: &Step) -> Seen {
    match *step {
        Step::Read { offset, length, .. } => Seen::Read(offset, length as usize),
        Step::Write { offset, length, fua, .. } => Seen::Write(offset, length as usize, fua),
        Step::Flush => Seen::Flush,
        Step::Clear { kind: command::TRIM, offset, length, flags } => {
            Seen::Trim(offset, length, flags & 1 != 0)
        }
        Step::Clear { offset, length, flags, .. } => {
            let (fua, may_punch_hole) = (flags & command_flag::FUA != 0, flags & command_flag::NO_HOLE == 0);
            Seen::Zeroes(offset, length, fastness_nbd::ZeroOptions { fua, may_punch_hole, fast: false })
        }
    }
}

fn run(client: &mut Client, step: &Step, model: &mut [u8]) {
    let range = |offset: u64, length: u64| offset as usize..(offset + length) as usize;
    match *step {
        Step::Read { offset, length, flags } => {
            let is_simple = client.hello().mode == HeaderMode::Simple;
            let flags = if is_simple { 0 } else { flags };
            let reply =
                client.call(&Request { kind: command::READ, flags, offset, length, payload: &[] }).unwrap();
            assert_eq!(reply.error, 0);
            assert!(reply.data == model[range(offset, length)], "wrong bytes");
        }
        Step::Write { offset, length, value, fua } => {
            let data: Vec<u8> = (0..length).map(|index| value.wrapping_add((index % 251) as u8)).collect();
            client.write(offset, &data, fua).unwrap();
            model[range(offset, length)].copy_from_slice(&data);
        }
        Step::Clear { kind, offset, length, flags } => {
            assert_eq!(client.call(&Request { kind, flags, offset, length, payload: &[] }).unwrap().error, 0);
            model[range(offset, length)].fill(0);
        }
        Step::Flush => client.flush().unwrap(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn connections_agree_with_an_array(steps in proptest::collection::vec(step(), 1..60)) {
        let world = World::new();
        world.recorder.open_gate();
        let modes = [HeaderMode::Simple, HeaderMode::Structured, HeaderMode::Extended];
        let mut clients = modes.map(|mode| world.client(mode));
        let mut model = vec![0; SIZE as usize];
        for (index, step) in &steps {
            world.recorder.take();
            run(&mut clients[*index], step, &mut model);
            // A sparse read may be several reads, or none.
            if !matches!(step, Step::Read { .. }) {
                prop_assert_eq!(world.recorder.take(), vec![expected(step)]);
            }
        }
        for client in clients {
            client.disconnect().unwrap();
        }
    }
}

/// Many in flight on several connections, each in its own part: afterwards every byte is where it belongs.
#[test]
fn pipelined_writes_of_several_connections() {
    let world = World::new();
    let part = SIZE / 4;
    std::thread::scope(|scope| {
        for index in 0..4u64 {
            let world = &world;
            scope.spawn(move || {
                let mut client =
                    world.client(if index % 2 == 0 { HeaderMode::Structured } else { HeaderMode::Extended });
                let block = 4096;
                for round in 0..4u8 {
                    let mut in_flight = 0;
                    for at in (0..part).step_by(block) {
                        let payload = [(at / block as u64) as u8 ^ round; 4096];
                        let flags = if index % 2 == 0 { 0 } else { command_flag::PAYLOAD_LEN };
                        let offset = index * part + at;
                        let kind = command::WRITE;
                        client
                            .send(&Request { kind, flags, offset, length: block as u64, payload: &payload })
                            .unwrap();
                        in_flight += 1;
                        if in_flight == 32 {
                            assert_eq!(client.receive_chunk(|_| 0).unwrap().error, 0);
                            in_flight -= 1;
                        }
                    }
                    (0..in_flight).for_each(|_| assert_eq!(client.receive_chunk(|_| 0).unwrap().error, 0));
                    let all = client.read(index * part, part as u32).unwrap();
                    for (at, bytes) in all.chunks(block).enumerate() {
                        assert!(
                            bytes.iter().all(|byte| *byte == at as u8 ^ round),
                            "part {index}, block {at}"
                        );
                    }
                }
                client.disconnect().unwrap();
            });
        }
    });
}
