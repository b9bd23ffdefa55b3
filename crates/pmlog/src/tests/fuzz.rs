//! Corrupted regions: whatever they contain, nothing panics and no record is invented.

use fastness_pm_model::Rng;

use super::*;
use crate::Survey;

/// Corrupts a few bytes somewhere, in one of the ways in which media and programs do.
fn corrupt(image: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..=rng.below(3) {
        // Half of the damage goes to the first bytes of blocks and chunks, where the fields are.
        let len = image.len() as u64;
        let at = match rng.below(2) {
            0 => rng.below(len),
            _ => (rng.below(len / 1024) * 1024 + rng.below(100)).min(len - 1),
        } as usize;
        let end = (at + 1 + rng.below(300) as usize).min(image.len());
        match rng.below(5) {
            0 | 1 => image[at] ^= 1 << rng.below(8),
            2 => image[at..end].fill(0),
            3 => image[at..end].iter_mut().for_each(|byte| *byte = rng.below(256) as u8),
            _ => {
                // A copy of other bytes of the log, as a misdirected write leaves it.
                let from = rng.below(at as u64 + 1) as usize;
                let copy = image[from..from + (end - at)].to_vec();
                image[at..end].copy_from_slice(&copy);
            }
        }
    }
    if rng.below(20) == 0 {
        let lines = rng.below(image.len() as u64 / 64 + 1);
        image.truncate(lines as usize * 64);
    }
}

/// Recomputes the checksums of the front blocks, so that the checks after them are reached.
fn reseal(image: &mut [u8]) {
    for block in image.chunks_exact_mut(4096).take(4) {
        let crc = crc32c::crc32c(&block[..4092]);
        block[4092..].copy_from_slice(&crc.to_le_bytes());
    }
}

#[test]
fn corrupted_logs() {
    let (recorder, mut log) = new_log(SMALL + 2048);
    log.append(b"trimmed").unwrap();
    log.trim().unwrap();
    let appended = records(0..9);
    for (index, record) in appended.iter().enumerate() {
        if index % 4 == 0 {
            log.barrier();
        }
        log.append(record).unwrap();
    }
    drop(log);
    let good = recorder.image();
    let mut opened = [0; 2];
    let mut rng = Rng::new(7);
    for round in 0..1500 {
        let mut image = good.clone();
        corrupt(&mut image, &mut rng);
        if round % 3 == 0 {
            reseal(&mut image);
        }
        for (index, result) in [open_image(&image), open_partly(&image)].into_iter().enumerate() {
            let Ok(recovery) = result else { continue };
            opened[index] += 1;
            let found = records_of(recovery);
            let mut rest = appended.iter();
            assert!(found.iter().all(|record| rest.any(|known| known == record)), "round {round}: {found:?}");
        }
        let recorder = super::recorder(image.clone());
        let survey = Survey::new(whole(&recorder, image.len()));
        for index in 0..survey.chunks() {
            let chunk = survey.chunk(index);
            chunk.entries.iter().for_each(|entry| drop(survey.read_body(index, &entry.entry)));
        }
    }
    assert!(opened[0] > 100 && opened[1] > opened[0], "{opened:?}");
}
