//! NVMe drives, plugged in after a restore: with one at the boot QEMU refuses to make a snapshot.

use std::path::PathBuf;

use serde_json::{Value, json};

/// A drive on a file, which the guest writes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nvme {
    /// A raw image of whole blocks of 512 bytes.
    pub image: PathBuf,
}

impl Nvme {
    /// Arguments of `blockdev-add`: node `drive0` and so on.
    pub(super) fn node(&self, index: usize) -> Value {
        json!({
            "driver": "raw", "node-name": format!("drive{index}"),
            "file": {"driver": "file", "filename": self.image.to_string_lossy(), "locking": "off"},
        })
    }

    /// Arguments of `device_add`. Without shadow doorbells (`dbcs`) the guest rings those of the registers,
    /// which a tracer sees.
    pub(super) fn device(index: usize, has_dbcs: bool) -> Value {
        let mut device = json!({
            "driver": "nvme", "id": format!("nvme{index}"), "drive": format!("drive{index}"),
            "serial": format!("fastness{index}"), "bus": format!("slot{index}"),
        });
        if has_dbcs {
            device["dbcs"] = json!(false);
        }
        device
    }
}
