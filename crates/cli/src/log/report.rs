//! What several commands print about a region and a log.

use std::io::{self, Write};

use fastness_pmem::{Durability, RegionInfo, RegionKind};
use fastness_pmlog::Geometry;
use fastness_terminal::{fields, size};
use serde_json::{Value, json};

/// The region's kind, its chunks, and what survives a crash.
pub(super) fn region(out: &mut dyn Write, info: &RegionInfo, geometry: &Geometry) -> io::Result<()> {
    let path = info.path.as_ref().map_or_else(String::new, |path| path.display().to_string());
    let msync = if info.msync { ", then msync" } else { "" };
    fields(
        out,
        &[
            ("region", format!("{path} ({}, {})", info.kind, size::show(info.len_bytes))),
            ("chunks", format!("{} of {}", geometry.chunks, size::show(geometry.chunk_bytes))),
            (
                "records",
                format!(
                    "aligned to {} bytes, checksum {}",
                    geometry.alignment.bytes(),
                    geometry.checksum.name()
                ),
            ),
            ("written with", format!("{}{msync}", info.kernel)),
            ("persistence domain", info.persistence_domain.to_string()),
            ("after a process crash", process_crash(info).into()),
            ("after a power cut", power_cut(info).into()),
        ],
    )
}

/// What a process crash leaves, in terms of records.
pub(super) fn process_crash(info: &RegionInfo) -> &'static str {
    match info.kind {
        RegionKind::Anonymous => "nothing is left",
        _ => {
            "every acknowledged record is there; a record that was being written is there in full or not at all"
        }
    }
}

/// What a power cut leaves, in terms of records.
pub(super) fn power_cut(info: &RegionInfo) -> &'static str {
    match (info.durability, info.kind) {
        (Durability::PowerFail, _) => {
            "every acknowledged record is there; a record that was being written is there in full or not at all"
        }
        (_, RegionKind::Tmpfs | RegionKind::Anonymous) => "nothing is left: the file is in memory",
        (_, RegionKind::File) => "acknowledged records may be missing: msync is off",
        _ => "acknowledged records may be missing: it is unknown whether this memory keeps its contents",
    }
}

/// The same as JSON.
pub(super) fn region_json(info: &RegionInfo, geometry: Option<&Geometry>) -> Value {
    json!({
        "path": info.path.as_ref().map(|path| path.display().to_string()),
        "kind": info.kind.to_string(),
        "len_bytes": info.len_bytes,
        "align_bytes": info.align_bytes,
        "persistence_domain": info.persistence_domain.to_string(),
        "written_with": info.kernel.to_string(),
        "msync": info.msync,
        "unsafe_shutdowns": info.unsafe_shutdowns,
        "bad_blocks": info.bad_blocks.to_string(),
        "survives_process_crash": info.kind != RegionKind::Anonymous,
        "survives_power_cut": info.durability == Durability::PowerFail,
        "geometry": geometry.map(geometry_json),
    })
}

pub(super) fn geometry_json(geometry: &Geometry) -> Value {
    json!({
        "region_bytes": geometry.region_bytes,
        "chunk_bytes": geometry.chunk_bytes,
        "chunks": geometry.chunks,
        "alignment_bytes": geometry.alignment.bytes(),
        "checksum": geometry.checksum.name(),
    })
}
