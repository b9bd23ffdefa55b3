use super::*;
use crate::sampler::synthetic::code::*;

fn store(bytes: u32, is_non_temporal: bool) -> Decoded {
    Decoded::Store { bytes, is_non_temporal }
}

fn cases() -> Vec<(&'static [u8], Decoded)> {
    vec![
        (MOV8, store(8, false)),
        (MOVNTI8, store(8, true)),
        (MOVDQU16, store(16, false)),
        (MOVNTDQ16, store(16, true)),
        (VMOVNTDQ32, store(32, true)),
        (VMOVDQU32, store(32, false)),
        (VMOVNTDQ64, store(64, true)),
        (VMOVDQU64, store(64, false)),
        (MOVDIR64B, store(64, true)),
        (LOCK_ADD4, store(4, false)),
        (PUSH8, store(8, false)),
        // mov byte [rdi], 7; mov word [rdi], 7; clzero; xchg [rdi], rax; stosq; movsd (a string).
        (&[0xc6, 0x07, 0x07], store(1, false)),
        (&[0x66, 0xc7, 0x07, 0x07, 0x00], store(2, false)),
        (&[0x0f, 0x01, 0xfc], store(64, true)),
        (&[0x48, 0x87, 0x07], store(8, false)),
        (&[0x48, 0xab], store(8, false)),
        (&[0xa5], store(4, false)),
        (REP_STOSQ, Decoded::Unsized),
        (REP_MOVSB, Decoded::Unsized),
        // vpscatterdd [rdi+zmm1*4]{k1}, zmm0; xsave [rdi].
        (&[0x62, 0xf2, 0x7d, 0x49, 0xa0, 0x04, 0x8f], Decoded::Unsized),
        (&[0x0f, 0xae, 0x27], Decoded::Unsized),
        (CLWB, Decoded::Flush),
        (CLFLUSHOPT, Decoded::Flush),
        (CLFLUSH, Decoded::Flush),
        (LOAD, Decoded::NoStore),
        // sfence; nop; ud2; cmp [rdi], rax.
        (&[0x0f, 0xae, 0xf8], Decoded::NoStore),
        (&[0x90], Decoded::NoStore),
        (&[0x0f, 0x0b], Decoded::NoStore),
        (&[0x48, 0x39, 0x07], Decoded::NoStore),
    ]
}

#[test]
fn what_an_instruction_stores_is_known() {
    let mut decoder = Decoder::default();
    for (code, expected) in cases() {
        let mut padded = code.to_vec();
        padded.resize(INSTRUCTION_BYTES_MAX, 0x90);
        assert_eq!(decoder.at(&padded, 0x1000), expected, "{code:x?}");
        if expected != Decoded::NoStore {
            assert_eq!(decoder.at(&code[..code.len() - 1], 0x1000), Decoded::NoStore, "cut: {code:x?}");
        }
    }
    assert_eq!(decoder.at(&[], 0x1000), Decoded::NoStore);
}

/// The source's loop (listing 6.1 b): each of its instructions is found from the address after it.
#[test]
fn the_instruction_before_an_address_is_found() {
    let body: [&[u8]; 9] = [
        &[0x48, 0x8d, 0x04, 0x0f],       // lea rax, [rdi+rcx]
        &[0xf3, 0x0f, 0x7f, 0x00],       // movdqu [rax], xmm0
        &[0xf3, 0x0f, 0x7f, 0x40, 0x10], // and on to the end of the line
        &[0xf3, 0x0f, 0x7f, 0x40, 0x20],
        &[0xf3, 0x0f, 0x7f, 0x40, 0x30],
        CLWB,
        &[0x48, 0x83, 0xc1, 0x40], // add rcx, 64
        &[0x48, 0x39, 0xf1],       // cmp rcx, rsi
        &[0x72, 0xde],             // jb
    ];
    let s16 = store(16, false);
    let expected = [
        Decoded::NoStore,
        s16,
        s16,
        s16,
        s16,
        Decoded::Flush,
        Decoded::NoStore,
        Decoded::NoStore,
        Decoded::NoStore,
    ];
    let mut decoder = Decoder::default();
    let mut code = vec![0x90; BEFORE_BYTES];
    for (instruction, expected) in body.iter().zip(expected) {
        code.extend_from_slice(instruction);
        assert_eq!(decoder.before(&code, 0x1000 + code.len() as u64), expected, "{instruction:x?}");
    }
    for (instruction, expected) in cases().into_iter().filter(|(code, _)| *code != [0x0f, 0x0b]) {
        let code = [&body.concat()[..], instruction].concat();
        assert_eq!(decoder.before(&code, 0x1000), expected, "{instruction:x?}");
    }
    assert_eq!(decoder.before(&[], 0x1000), Decoded::NoStore);
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_decoded(code in proptest::collection::vec(proptest::num::u8::ANY, 0..80), ip: u64) {
        let mut decoder = Decoder::default();
        for decoded in [decoder.at(&code, ip), decoder.before(&code, ip)] {
            if let Decoded::Store { bytes, .. } = decoded {
                proptest::prop_assert!((1..=4096).contains(&bytes), "{bytes}");
            }
        }
    }
}
