//! What `status` knows of pools, their devices, logs and jobs.

use fastness_daemon::{Address, JobReport, LogCauseReport, PoolReport, RegionReport};

use super::text::Text;

/// States of a pool.
const STATES: [&str; 4] = ["online", "degraded", "damaged", "suspended"];

pub(super) fn of_pools(text: &mut Text, pools: &[PoolReport]) {
    text.head("fastness_pool_state", "gauge", "1 for the state that the pool is in");
    for pool in pools {
        for state in STATES {
            let is_it = u8::from(pool.state == state);
            text.sample("fastness_pool_state", &[("pool", &pool.name), ("state", state)], is_it);
        }
    }
    type Of = fn(&PoolReport) -> u64;
    let gauges: [(&str, &str, Of); 7] = [
        ("fastness_pool_size_bytes", "Space of the vdevs", |pool| pool.total_bytes),
        ("fastness_pool_used_bytes", "Space in use", |pool| pool.used_bytes),
        ("fastness_pool_free_bytes", "Space available to data", |pool| pool.free_bytes),
        ("fastness_pool_unsynced_bytes", "Changes in memory", |pool| pool.dirty_bytes),
        ("fastness_pool_unsynced_bytes_max", "Bound of these", |pool| pool.dirty_bytes_max),
        ("fastness_pool_waiting_requests", "Requests that wait for a suspended pool", |pool| {
            pool.waiting as u64
        }),
        ("fastness_pool_uptime_seconds", "Since the import", |pool| pool.uptime_s),
    ];
    for (name, help, of) in gauges {
        text.each(name, "gauge", help, pools, |pool| (&pool.name, of(pool)));
    }
    let synced = "fastness_pool_synced_txg";
    text.each(synced, "gauge", "Newest durable txg", pools, |pool| (&pool.name, pool.synced_txg));
    let open = "fastness_pool_open_txg";
    text.each(open, "gauge", "The txg that changes join", pools, |pool| (&pool.name, pool.open_txg));
    let damaged = "fastness_pool_damaged_blocks";
    text.each(damaged, "gauge", "Blocks without a good copy", pools, |pool| {
        (&pool.name, pool.damaged.len() as u64 + pool.damaged_unlisted)
    });
    text.head("fastness_pool_import_seconds", "gauge", "How long each step of the import took");
    for pool in pools {
        for step in &pool.import.steps {
            let labels = [("pool", &*pool.name), ("step", step.step.name())];
            text.sample("fastness_pool_import_seconds", &labels, step.elapsed_us as f64 / 1e6);
        }
    }
    text.head("fastness_clients", "gauge", "Clients connected to a volume");
    for pool in pools {
        for served in pool.served.iter().filter(|served| !matches!(served.address, Address::Mount(_))) {
            let labels = [("pool", &*pool.name), ("name", &*served.volume), ("address", &*served.uri)];
            text.sample("fastness_clients", &labels, served.clients);
        }
    }
}

/// Scrubs and resilvers.
pub(super) fn of_jobs(text: &mut Text, pools: &[PoolReport]) {
    type Of = fn(&JobReport) -> u64;
    let gauges: [(&str, &str, Of); 5] = [
        ("fastness_job_running", "1 while a scrub or resilver runs", |job| u64::from(job.state == "running")),
        ("fastness_job_done_bytes", "What the scrub or resilver, or the last one, has read", |job| {
            job.done_bytes
        }),
        ("fastness_job_bytes", "About how much it reads", |job| job.total_bytes),
        ("fastness_job_wrong_copies", "Bad copies that it found", |job| job.wrong_copies),
        ("fastness_job_lost_places", "Places without a good copy that it found", |job| job.lost.len() as u64),
    ];
    for (name, help, of) in gauges {
        text.head(name, "gauge", help);
        for pool in pools {
            if let Some(job) = &pool.job {
                text.sample(name, &[("pool", &pool.name), ("job", &job.what)], of(job));
            }
        }
    }
}

pub(super) fn of_devices(text: &mut Text, pools: &[PoolReport]) {
    text.head("fastness_device_state", "gauge", "1 for the state that the device is in");
    for pool in pools {
        for device in pool.vdevs.iter().flat_map(|vdev| &vdev.devices) {
            let labels = [("pool", &*pool.name), ("device", &*device.path), ("state", &*device.state)];
            text.sample("fastness_device_state", &labels, 1);
        }
    }
    let errors = "fastness_device_errors_total";
    text.head(errors, "counter", "Errors of a device, and blocks that were healed on it");
    for pool in pools {
        for device in pool.vdevs.iter().flat_map(|vdev| &vdev.devices) {
            for (error, count) in [
                ("read", device.read_errors),
                ("write", device.write_errors),
                ("checksum", device.checksum_errors),
                ("healed", device.healed),
            ] {
                let labels = [("pool", &*pool.name), ("device", &*device.path), ("error", error)];
                text.sample(errors, &labels, count);
            }
        }
    }
}

pub(super) fn of_logs(text: &mut Text, pools: &[PoolReport]) {
    text.head("fastness_log_info", "gauge", "The kind of log that the pool uses");
    for pool in pools {
        if let Some(log) = &pool.log {
            text.sample("fastness_log_info", &[("pool", &pool.name), ("kind", &log.kind)], 1);
        }
    }
    let counter = "fastness_log_events_total";
    text.head(counter, "counter", "What the log of a dataset did since it was opened");
    for pool in pools {
        for volume in pool.log.iter().flat_map(|log| &log.volumes) {
            let of = &volume.counters;
            for (event, count) in [
                ("records", of.records),
                ("record_bytes", of.bytes),
                ("commits", of.commits),
                ("flushes", of.flushes),
                ("waits", of.waits),
                ("copied", of.copied),
                ("need_copy", of.need_copy),
                ("indirect", of.indirect),
                ("indirect_bytes", of.indirect_bytes),
                ("txg_instead", of.fallbacks),
                ("stalls", of.stalls),
                ("errors", of.errors),
            ] {
                let labels = [("pool", &*pool.name), ("name", &*volume.name), ("event", event)];
                text.sample(counter, &labels, count);
            }
        }
    }
    type Of = fn(&LogCauseReport) -> u64;
    let causes: [(&str, &str, Of); 2] = [
        ("fastness_log_txg_instead_total", "Commits and flushes that waited for a txg, by cause", |of| {
            of.fallbacks
        }),
        ("fastness_log_unlogged_total", "Records that were not logged, by cause", |of| of.unlogged),
    ];
    for (name, help, of) in causes {
        text.head(name, "counter", help);
        for pool in pools {
            for volume in pool.log.iter().flat_map(|log| &log.volumes) {
                for cause in &volume.causes {
                    let labels = [("pool", &*pool.name), ("name", &*volume.name), ("cause", &*cause.cause)];
                    text.sample(name, &labels, of(cause));
                }
            }
        }
    }
    of_regions(text, pools);
}

/// Regions of persistent memory.
fn of_regions(text: &mut Text, pools: &[PoolReport]) {
    let (state, faults) = ("fastness_log_region_state", "fastness_log_region_faults_total");
    let each = |text: &mut Text, show: &dyn Fn(&mut Text, &str, &RegionReport)| {
        for pool in pools {
            let regions = pool.log.iter().flat_map(|log| &log.regions);
            regions.for_each(|region| show(text, &pool.name, region));
        }
    };
    text.head(state, "gauge", "1 for the state that the region is in");
    each(text, &|text, pool, of| {
        text.sample(state, &[("pool", pool), ("region", &of.path), ("state", &of.state)], 1);
    });
    text.head(faults, "counter", "Times that a region did not hold what was written to it");
    each(text, &|text, pool, of| {
        text.sample(faults, &[("pool", pool), ("region", &of.path)], of.faults);
    });
    let time = "fastness_log_medium_write_seconds_total";
    text.head(time, "counter", "Time that all writers together spent writing to the regions, estimated");
    for pool in pools {
        if let Some(of) = pool.log.as_ref().and_then(|log| log.medium_counters.as_ref()) {
            text.sample(time, &[("pool", &pool.name)], of.time_in_pm_ns as f64 / 1e9);
        }
    }
    let counter = "fastness_log_medium_events_total";
    text.head(counter, "counter", "What was written to the regions of persistent memory since the import");
    for pool in pools {
        let Some(of) = pool.log.as_ref().and_then(|log| log.medium_counters.as_ref()) else { continue };
        for (event, count) in [
            ("entries", of.entries),
            ("bytes", of.bytes),
            ("slot_waits", of.slot_waits),
            ("chunk_waits", of.chunk_waits),
            ("chunks_emptied", of.chunks_collected),
            ("faults", of.media_faults),
            ("read_bytes", of.read_bytes),
            ("read_faults", of.read_faults),
        ] {
            text.sample(counter, &[("pool", &pool.name), ("event", event)], count);
        }
    }
}
