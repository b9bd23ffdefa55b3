use super::*;

fn label(number: u64) -> Label {
    Label {
        kind: RegionKind::Tmpfs,
        device: 1,
        inode: number,
        len_bytes: 4096,
        numa_node: Some(0),
        path: Some(PathBuf::from(format!("/dev/shm/{number}"))),
    }
}

#[test]
fn a_region_has_one_row_and_those_without_room_share_one() {
    let table = Table::create(None);
    let rows: Vec<usize> = (0..OTHERS as u64).map(|number| table.row(&label(number))).collect();
    assert_eq!(rows, (0..OTHERS).collect::<Vec<_>>());
    assert_eq!((table.row(&label(3)), table.row(&label(1000))), (3, OTHERS));
    let moved = Label { path: Some("/dev/shm/elsewhere".into()), ..label(3) };
    assert_eq!(table.row(&moved), OTHERS, "another name");
}

/// Whoever finds no free cell counts all the same; the sum is exact.
#[test]
fn cells_are_given_back_and_nothing_is_lost_without_one() {
    let table: &'static Table = Box::leak(Box::new(Table::create(None)));
    let row = table.row(&label(0));
    let cells: Vec<CellRef> = (0..CELLS).map(|_| table.claim(row).unwrap()).collect();
    assert!(table.claim(row).is_none());
    table.add_ended(row, 7);
    cells.iter().for_each(|cell| cell.add(64));
    assert_eq!(table.sum_bytes(), 7 + 64 * CELLS as u64);
    cells.iter().take(10).for_each(|cell| table.release(row, *cell));
    assert_eq!(table.sum_bytes(), 7 + 64 * CELLS as u64, "moved to the row");
    table.claim(row).unwrap().add(1);
    assert_eq!(table.sum_bytes(), 8 + 64 * CELLS as u64, "a cell begins at zero");
}

#[test]
fn a_cell_is_a_cache_line() {
    assert_eq!(CELL_WORDS * 8, crate::LINE_BYTES);
    assert!((FIRST_CELL * 8).is_multiple_of(crate::LINE_BYTES));
    let table = Table::create(None);
    assert!((table.cell_words(0).as_ptr().addr()).is_multiple_of(crate::LINE_BYTES));
}
