use super::*;

/// The recurrence as ZFS writes it, one word at a time.
fn fletcher4_reference(bytes: &[u8]) -> Checksum {
    let mut sums = [0u64; 4];
    for word in bytes.chunks(4) {
        let mut le = [0; 4];
        le[..word.len()].copy_from_slice(word);
        sums[0] = sums[0].wrapping_add(u64::from(u32::from_le_bytes(le)));
        for i in 1..4 {
            sums[i] = sums[i].wrapping_add(sums[i - 1]);
        }
    }
    let mut out = [0; 32];
    out.chunks_mut(8).zip(sums).for_each(|(to, sum)| to.copy_from_slice(&sum.to_le_bytes()));
    out
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(len)
    .collect()
}

/// As a copy kernel does it: whole blocks of the summer's size, then the rest.
fn in_blocks<S: BodySum>(bytes: &[u8]) -> Checksum {
    let mut sum = S::default();
    bytes.chunks(S::BLOCK_BYTES).for_each(|block| sum.update(block));
    sum.finish()
}

#[test]
fn fletcher4_equals_the_word_by_word_recurrence() {
    for len in (0..=300).chain([1023, 1024, 4096, 4097, 65536]) {
        let bytes = noise(len);
        assert_eq!(ChecksumKind::Fletcher4.of(&bytes), fletcher4_reference(&bytes), "{len} bytes");
        assert_eq!(ChecksumKind::Fletcher4.of(&vec![0xff; len]), fletcher4_reference(&vec![0xff; len]));
    }
}

#[test]
fn a_fused_sum_equals_the_sum_in_one_go() {
    for len in [
        0, 1, 8, 63, 64, 65, 200, 240, 241, 256, 257, 511, 512, 4096, 32767, 32768, 32769, 65536, 98303,
        100_000,
    ] {
        let bytes = noise(len);
        let fused =
            [in_blocks::<Fletcher4Sum>(&bytes), in_blocks::<Crc32cSum>(&bytes), in_blocks::<Xxh3Sum>(&bytes)];
        assert_eq!(fused, ChecksumKind::ALL.map(|kind| kind.of(&bytes)), "{len} bytes");
    }
}

#[test]
fn a_sum_in_parts_equals_the_sum_in_one_go() {
    fn in_parts<S: BodySum>(head: &[u8], rest: &[u8]) -> Checksum {
        let mut sum = S::in_parts();
        let blocks = head.chunks(S::BLOCK_BYTES).chain(rest.chunks(S::BLOCK_BYTES));
        blocks.for_each(|block| sum.update(block));
        sum.finish()
    }
    for (head, rest) in
        [(64, 0), (64, 1), (64, 64), (64, 200), (128, 4096), (256, 257), (64, 4096), (64, 70_000)]
    {
        let bytes = noise(head + rest);
        let (head, rest) = bytes.split_at(head);
        let sums = [
            in_parts::<Fletcher4Sum>(head, rest),
            in_parts::<Crc32cSum>(head, rest),
            in_parts::<Xxh3Sum>(head, rest),
        ];
        assert_eq!(sums, ChecksumKind::ALL.map(|kind| kind.of(&bytes)), "{} + {}", head.len(), rest.len());
    }
}

/// Published check values, so that other decoders agree with ours.
#[test]
fn published_check_values() {
    assert_eq!(ChecksumKind::Crc32c.of(b"123456789")[..4], 0xE306_9283u32.to_le_bytes());
    let hash = 0x99aa_06d3_0147_98d8_6001_c324_468d_497fu128.to_le_bytes();
    let sum = ChecksumKind::Xxh3.of(b"");
    assert_eq!((&sum[..14], &sum[14..]), (&hash[..14], &[0; 18][..]));
}

#[test]
fn every_kind_sees_every_flipped_bit() {
    let bytes = noise(300);
    for kind in ChecksumKind::ALL {
        let good = kind.of(&bytes);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(kind.of(&bad), good, "{} misses bit {bit}", kind.name());
        }
    }
}
