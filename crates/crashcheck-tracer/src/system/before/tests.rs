use super::*;

const LEN: u64 = 1 << 20;

fn act(before: &mut Before, command: u32, what: What) {
    before.add(Action { command, what });
}

fn write(before: &mut Before, command: u32, offset: u64, value: u8) {
    act(before, command, What::Write { offset, data: vec![value; 512], is_fua: false });
}

fn end(before: &mut Before, command: u32) {
    act(before, command, What::Completion { is_ok: true });
}

fn pieces(contents: &Contents, len_bytes: u64) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    contents
        .each(len_bytes, |offset, data| {
            found.push((offset, data.to_vec()));
            Ok::<_, ()>(())
        })
        .unwrap();
    found
}

/// First bytes of the first three blocks, as they are durable, and the commands of what is not.
fn outcome(before: Before) -> ([u8; 3], Vec<u32>) {
    let (contents, unsettled) = before.end().unwrap();
    let found = pieces(&contents, LEN);
    let first = found.first().filter(|(offset, _)| *offset == 0).map(|(_, data)| &data[..]);
    let byte = |block: usize| first.map_or(0, |data| data[block * 512]);
    ([byte(0), byte(1), byte(2)], unsettled.iter().map(|action| action.command).collect())
}

#[test]
fn a_flush_settles_what_had_ended_and_the_rest_is_kept_in_order() {
    let mut before = Before::new(None, LEN);
    write(&mut before, 1, 0, 1);
    write(&mut before, 2, 512, 2);
    end(&mut before, 2);
    end(&mut before, 1);
    act(&mut before, 3, What::Flush);
    write(&mut before, 1, 0, 9);
    end(&mut before, 3);
    end(&mut before, 1);
    write(&mut before, 4, 1024, 4);
    assert_eq!(outcome(before), ([1, 2, 0], vec![1, 1, 4]));
}

#[test]
fn a_flush_beside_another_command_or_in_flight_settles_nothing() {
    let mut before = Before::new(None, LEN);
    write(&mut before, 1, 0, 1);
    end(&mut before, 1);
    write(&mut before, 2, 512, 2);
    act(&mut before, 3, What::Flush);
    end(&mut before, 2);
    end(&mut before, 3);
    act(&mut before, 4, What::Flush);
    assert_eq!(outcome(before), ([0; 3], vec![1, 1, 2, 3, 2, 3, 4]));
}

#[test]
fn later_flushes_settle_what_earlier_ones_did_not() {
    let mut before = Before::new(None, LEN);
    write(&mut before, 2, 512, 2);
    act(&mut before, 3, What::Flush);
    end(&mut before, 2);
    end(&mut before, 3);
    act(&mut before, 3, What::Flush);
    end(&mut before, 3);
    act(&mut before, 5, What::Discard { offset: 512, len_bytes: 512 });
    end(&mut before, 5);
    write(&mut before, 6, 1024, 6);
    end(&mut before, 6);
    act(&mut before, 7, What::Flush);
    end(&mut before, 7);
    assert_eq!(outcome(before), ([0, 0, 6], vec![]));
}

#[test]
fn a_command_that_failed_is_refused() {
    let mut before = Before::new(None, LEN);
    write(&mut before, 1, 0, 1);
    act(&mut before, 1, What::Completion { is_ok: false });
    assert!(matches!(before.end(), Err(BeforeError::Failed)));
}

#[test]
fn pages_come_and_go() {
    let mut contents = Contents::default();
    contents.write(0, &[0; 9000]);
    assert_eq!(contents, Contents::default(), "zeroes are not kept");
    contents.write(4000, &[1; 8192]);
    contents.write(5 * 4096, &[2; 1]);
    let found = pieces(&contents, LEN);
    assert_eq!(
        found.iter().map(|(at, data)| (*at, data.len())).collect::<Vec<_>>(),
        [(0, 12288), (20480, 4096)]
    );
    contents.clear(4095, 4098);
    let found = pieces(&contents, LEN);
    assert_eq!(
        found.iter().map(|(at, data)| (*at, data.len())).collect::<Vec<_>>(),
        [(0, 4096), (8192, 4096), (20480, 4096)]
    );
    assert_eq!((found[0].1[4094], found[0].1[4095], found[1].1[0], found[1].1[1]), (1, 0, 0, 1));
    contents.clear(0, u64::MAX);
    assert_eq!(contents, Contents::default());
    contents.write(0, &vec![3; 300 << 10]);
    let found = pieces(&contents, (300 << 10) - 512);
    assert_eq!(
        found.iter().map(|(at, data)| (*at, data.len())).collect::<Vec<_>>(),
        [(0, 256 << 10), (256 << 10, (44 << 10) - 512)]
    );
}

#[test]
fn a_file_is_read_without_its_holes() {
    let path = std::env::temp_dir().join(format!("fastness-tracer-disk-{}", std::process::id()));
    let file = File::create(&path).unwrap();
    file.set_len(LEN).unwrap();
    file.write_all_at(b"xy", 70_000).unwrap();
    file.write_all_at(b"z", LEN - 1).unwrap();
    let mut before = Before::new(Some(path.clone()), LEN);
    before.read().unwrap();
    // What is written to the file afterwards is seen as commands.
    file.write_all_at(b"no", 0).unwrap();
    let found = pieces(&before.end().unwrap().0, LEN);
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].0, &found[0].1[70_000 - 69_632..][..2]), (69_632, &b"xy"[..]));
    assert_eq!((found[1].0, found[1].1.last()), (LEN - 4096, Some(&b'z')));
    let wrong = Before::new(Some(path.clone()), LEN + 512).end();
    assert!(matches!(wrong, Err(BeforeError::Image(..))), "another length");
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(Before::new(Some(path), LEN).end(), Err(BeforeError::Image(..))), "no file");
}
