use std::collections::BTreeSet;

use super::*;

const TEXT: &[u8] = b"put name 128\nget name\ndel 64\n";

fn many(input: &[u8], count: usize) -> Vec<Vec<u8>> {
    let (mutator, mut rng) = (Mutator::default(), Rng::new(7));
    (0..count).map(|_| mutator.mutate(input, b"other 5\n", &mut rng)).collect()
}

fn texts(count: usize) -> Vec<String> {
    many(TEXT, count).into_iter().filter_map(|bytes| String::from_utf8(bytes).ok()).collect()
}

#[test]
fn one_seed_gives_the_same_inputs() {
    assert_eq!(many(TEXT, 500), many(TEXT, 500));
    let mut rng = Rng::new(8);
    assert_ne!(
        many(TEXT, 5),
        (0..5).map(|_| Mutator::default().mutate(TEXT, TEXT, &mut rng)).collect::<Vec<_>>()
    );
}

#[test]
fn numbers_of_text_become_odd_ones() {
    let texts = texts(3000);
    for wanted in
        ["put name 0\n", "put name 1\n", "put name 127\n", "put name 4097\n", "put name 4294967296\n"]
    {
        assert!(texts.iter().any(|text| text.contains(wanted)), "{wanted}");
    }
    let unaligned = |text: &&String| {
        let number =
            text.strip_prefix("put name ").and_then(|rest| rest.split('\n').next()?.parse::<u64>().ok());
        number.is_some_and(|number| number % 64 != 0)
    };
    assert!(texts.iter().filter(unaligned).count() > 100);
}

#[test]
fn names_reach_their_limits_and_lines_move() {
    let texts = texts(3000);
    let lengths: BTreeSet<usize> =
        texts.iter().flat_map(|text| text.split_whitespace().map(str::len)).collect();
    assert!([1, 255, 256].iter().all(|len| lengths.contains(len)), "{lengths:?}");
    for wanted in ["put name 128\ndel 64\n", "get name\nget name\n", "put  128\n", "other 5\n"] {
        assert!(texts.iter().any(|text| text.contains(wanted)), "{wanted}");
    }
    assert!(texts.iter().any(|text| text.starts_with("get name\nput name 128\n")), "swapped");
}

#[test]
fn any_bytes_are_changed_and_stay_short() {
    let mutator = Mutator { len_max: 300, words: vec![b"magic".to_vec()], ..Mutator::default() };
    let mut rng = Rng::new(1);
    let mut corpus = [Vec::new(), vec![0; 300], b"\x00\x01\xff".to_vec(), TEXT.to_vec()];
    let mut has_word = false;
    for round in 0..20_000 {
        let (one, two) = (rng.index(corpus.len()), rng.index(corpus.len()));
        let new = mutator.mutate(&corpus[one], &corpus[two], &mut rng);
        assert!(new.len() <= 300);
        has_word |= new.windows(5).any(|part| part == b"magic");
        corpus[round % 4] = new;
    }
    assert!(has_word);
}

#[test]
fn what_fails_is_shrunk_until_nothing_can_go() {
    let input = b"set a 640\nput first 4096\nget first\nput name 200\nend\n";
    let mut asked = 0;
    // A length beyond 99 that is no multiple of 64, in a line that begins with "put".
    let mut fails = |bytes: &[u8]| {
        asked += 1;
        let text = String::from_utf8_lossy(bytes);
        let number = |line: &str| line.strip_prefix("put ")?.split(' ').next_back()?.parse::<u64>().ok();
        Ok::<_, ()>(text.lines().filter_map(number).any(|number| number > 99 && number % 64 != 0))
    };
    let shrunk = shrink(input, 10_000, &mut fails).unwrap();
    assert_eq!(String::from_utf8_lossy(&shrunk), "put 100");
    assert!(asked < 500, "{asked}");
    assert_eq!(shrink(input, 0, &mut |_| Ok::<_, ()>(true)).unwrap(), input, "as often as allowed");
    assert!(shrink(input, 1, &mut |_| Ok::<_, ()>(true)).unwrap().is_empty());
}
