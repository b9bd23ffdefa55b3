use proptest::prelude::*;

use crate::error::Errno;
use crate::export::{BlockSizes, Features, ZeroOptions};
use crate::rules::{Command, Rules};
use crate::wire::{HeaderMode, RequestHeader, command as c, command_flag as f, flag};

const SIZE: u64 = 1 << 40;

fn rules() -> Rules {
    Rules {
        size_bytes: SIZE,
        blocks: BlockSizes { minimum: 512, preferred: 4096, maximum: 1 << 20 },
        features: Features {
            flush: true,
            fua: true,
            trim: true,
            write_zeroes: true,
            fast_zero: true,
            cache: true,
            extents: true,
            multi_conn: true,
            rotational: false,
        },
        is_read_only: false,
        mode: HeaderMode::Structured,
        has_allocation_context: true,
    }
}

fn request(kind: u16, flags: u16, offset: u64, length: u64) -> RequestHeader {
    RequestHeader { flags, kind, cookie: 7, offset, length }
}

fn outcome(rules: &Rules, request: &RequestHeader) -> Result<Command, Errno> {
    rules.judge(request).outcome.map_err(|refusal| refusal.errno)
}

/// Every command, with everything that can be wrong with it.
#[test]
fn requests_that_break_a_rule() {
    let full = rules();
    let read_only = Rules { is_read_only: true, ..full };
    let bare = Rules { features: Features { flush: false, ..Features::default() }, ..full };
    let simple = Rules { mode: HeaderMode::Simple, has_allocation_context: false, ..full };
    let max = 1 << 20;
    let table = [
        ("past the end", &full, request(c::READ, 0, SIZE, 512), Errno::Einval),
        ("overflow", &full, request(c::READ, 0, u64::MAX - 511, 512), Errno::Einval),
        ("unaligned offset", &full, request(c::READ, 0, 1, 512), Errno::Einval),
        ("unaligned length", &full, request(c::READ, 0, 0, 511), Errno::Einval),
        ("long read", &full, request(c::READ, 0, 0, max + 512), Errno::Einval),
        ("long whole read", &full, request(c::READ, f::DF, 0, max + 512), Errno::Eoverflow),
        ("DF unknown", &simple, request(c::READ, f::DF, 0, 512), Errno::Einval),
        ("NO_HOLE on a read", &full, request(c::READ, f::NO_HOLE, 0, 512), Errno::Einval),
        ("unknown flag", &full, request(c::READ, 1 << 15, 0, 512), Errno::Einval),
        ("FUA not offered", &bare, request(c::WRITE, f::FUA, 0, 512), Errno::Einval),
        ("write past the end", &full, request(c::WRITE, 0, SIZE - 512, 1024), Errno::Enospc),
        ("write overflow", &full, request(c::WRITE, 0, u64::MAX, 512), Errno::Enospc),
        ("long write", &full, request(c::WRITE, 0, 0, max + 512), Errno::Einval),
        ("unaligned write", &full, request(c::WRITE, 0, 256, 512), Errno::Einval),
        ("write, read-only", &read_only, request(c::WRITE, 0, 0, 512), Errno::Eperm),
        ("trim, read-only", &read_only, request(c::TRIM, 0, 0, 512), Errno::Eperm),
        ("zeroes, read-only", &read_only, request(c::WRITE_ZEROES, 0, 0, 512), Errno::Eperm),
        ("compact with PAYLOAD_LEN", &full, request(c::WRITE, f::PAYLOAD_LEN, 0, 512), Errno::Einval),
        ("flush not offered", &bare, request(c::FLUSH, 0, 0, 0), Errno::Einval),
        ("flush of a range", &full, request(c::FLUSH, 0, 0, 512), Errno::Einval),
        ("trim not offered", &bare, request(c::TRIM, 0, 0, 512), Errno::Einval),
        ("trim past the end", &full, request(c::TRIM, 0, SIZE, 512), Errno::Einval),
        ("zeroes not offered", &bare, request(c::WRITE_ZEROES, 0, 0, 512), Errno::Einval),
        ("zeroes past the end", &full, request(c::WRITE_ZEROES, 0, SIZE, 512), Errno::Enospc),
        ("fast zero not offered", &bare, request(c::WRITE_ZEROES, f::FAST_ZERO, 0, 512), Errno::Einval),
        ("cache not offered", &bare, request(c::CACHE, 0, 0, 512), Errno::Einval),
        ("cache past the end", &full, request(c::CACHE, 0, SIZE, 512), Errno::Einval),
        ("status without context", &simple, request(c::BLOCK_STATUS, 0, 0, 512), Errno::Einval),
        ("status of nothing", &full, request(c::BLOCK_STATUS, 0, 0, 0), Errno::Einval),
        ("status past the end", &full, request(c::BLOCK_STATUS, 0, SIZE, 512), Errno::Einval),
        ("unknown command", &full, request(8, 0, 0, 0), Errno::Einval),
        ("unknown command", &full, request(u16::MAX, 0, 0, 0), Errno::Einval),
    ];
    for (name, rules, request, errno) in table {
        assert_eq!(outcome(rules, &request), Err(errno), "{name}");
    }
}

#[test]
fn flags_reach_the_export() {
    let rules = rules();
    let options = |flags| match outcome(&rules, &request(c::WRITE_ZEROES, flags, 0, 512)) {
        Ok(Command::WriteZeroes { options, .. }) => options,
        other => panic!("{other:?}"),
    };
    let none = ZeroOptions { fua: false, may_punch_hole: true, fast: false };
    assert_eq!(options(0), none);
    assert_eq!(options(f::FUA), ZeroOptions { fua: true, ..none });
    assert_eq!(options(f::NO_HOLE), ZeroOptions { may_punch_hole: false, ..none });
    assert_eq!(options(f::FAST_ZERO), ZeroOptions { fast: true, ..none });
    let write = outcome(&rules, &request(c::WRITE, f::FUA, 512, 1024));
    assert_eq!(write, Ok(Command::Write { offset: 512, length: 1024, fua: true }));
    let trim = outcome(&rules, &request(c::TRIM, f::FUA, 512, 1024));
    assert_eq!(trim, Ok(Command::Trim { offset: 512, length: 1024, fua: true }));
    // Clients set FUA on any command.
    assert!(outcome(&rules, &request(c::READ, f::FUA, 0, 512)).is_ok());
    assert!(outcome(&rules, &request(c::FLUSH, f::FUA, 0, 0)).is_ok());
}

#[test]
fn what_is_advertised_is_what_there_is() {
    let full = rules();
    let all = full.transmission_flags();
    assert_eq!(all, 0b1101_1110_1101, "all but read-only and rotational");
    let read_only = Rules { is_read_only: true, ..full }.transmission_flags();
    let writes = flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO;
    assert_eq!(read_only, (all & !writes) | flag::READ_ONLY);
    let bare = Rules { features: Features::default(), mode: HeaderMode::Simple, ..full };
    assert_eq!(bare.transmission_flags(), flag::HAS_FLAGS | flag::SEND_FLUSH);
}

proptest! {
    /// Whatever arrives, an accepted request is in range, aligned, and short; and the payload is accounted
    /// for.
    #[test]
    fn what_is_let_through_is_sound(
        kind in 0u16..10,
        flags in prop_oneof![0u16..64, any::<u16>()],
        offset in prop_oneof![any::<u64>(), (0..SIZE / 512 + 4).prop_map(|block| block * 512)],
        length in prop_oneof![any::<u64>(), (0..5000u64).prop_map(|block| block * 512)],
        is_extended in any::<bool>(),
    ) {
        let mode = if is_extended { HeaderMode::Extended } else { HeaderMode::Structured };
        let rules = Rules { mode, ..rules() };
        let request = request(kind, flags, offset, length);
        let verdict = rules.judge(&request);
        let is_payload = kind == c::WRITE || (is_extended && flags & f::PAYLOAD_LEN != 0);
        prop_assert_eq!(verdict.payload_bytes, if is_payload { length } else { 0 });
        match verdict.outcome {
            Ok(Command::Read { length: short, .. } | Command::Write { length: short, .. }) => {
                prop_assert_eq!(u64::from(short), length);
                prop_assert!(short <= 1 << 20);
            }
            Ok(Command::Disconnect | Command::Flush) => return Ok(()),
            Ok(_) => prop_assert_eq!(verdict.payload_bytes, 0),
            Err(_) => return Ok(()),
        }
        prop_assert!(offset.checked_add(length).unwrap() <= SIZE);
        prop_assert!(offset % 512 == 0 && length % 512 == 0);
    }
}
