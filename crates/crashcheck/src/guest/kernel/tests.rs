use super::*;

/// The head of a kernel that says `text` at 0x300.
fn kernel(dir: &Path, text: &str) -> PathBuf {
    let mut head = vec![0; 0x400];
    head[0x202..0x206].copy_from_slice(b"HdrS");
    head[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
    head[0x300..0x300 + text.len()].copy_from_slice(text.as_bytes());
    let path = dir.join("vmlinuz");
    std::fs::write(&path, head).unwrap();
    path
}

#[test]
fn the_release_of_a_kernel_is_in_its_head() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(release(&kernel(dir.path(), "5.1.0+ (who@where) #1 SMP")).unwrap(), "5.1.0+");
    for text in ["", "../../etc"] {
        assert!(release(&kernel(dir.path(), text)).unwrap_err().to_string().contains("not a kernel for x86"));
    }
    let path = kernel(dir.path(), "5.1.0");
    let whole = std::fs::read(&path).unwrap();
    for len in [0, 0x203, 0x20f, 0x300] {
        std::fs::write(&path, &whole[..len]).unwrap();
        assert!(release(&path).is_err(), "{len}");
    }
    let mut far = whole;
    far[0x20e..0x210].copy_from_slice(&[0xff, 0xff]);
    std::fs::write(&path, &far).unwrap();
    assert!(release(&path).is_err());
}

#[test]
fn modules_of_another_release_are_refused_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("lib/modules/5.1.0");
    std::fs::create_dir_all(&own).unwrap();
    let said = |folder: &Path, release: &str| Modules::of(folder, release).unwrap_err().to_string();
    assert!(said(dir.path(), "6.1.0").contains("has no lib/modules/6.1.0"));
    assert!(said(dir.path(), "5.1.0").contains("depmod -b"), "no index yet");
    std::fs::write(own.join("modules.dep.bin"), "").unwrap();
    for folder in [dir.path(), &own] {
        assert_eq!(Modules::of(folder, "5.1.0").unwrap().root, dir.path());
    }
}

#[test]
fn a_console_says_what_a_kernel_lacks() {
    assert!(hint(" \n").unwrap().contains("CONFIG_SERIAL_8250_CONSOLE"));
    let panic = "Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)";
    assert!(hint(panic).unwrap().contains("CONFIG_BLK_DEV_INITRD"));
    assert!(hint("crash-guest: nobody to serve").unwrap().contains("CONFIG_VIRTIO_CONSOLE"));
    assert_eq!(hint("BUG: unable to handle page fault"), None);
}
