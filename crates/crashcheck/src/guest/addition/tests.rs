use super::*;

/// A guest as the script builds it, with these files in its initramfs.
fn guest(dir: &Path, files: &[(&str, &str)]) -> GuestConfig {
    let config = GuestConfig::new(dir);
    let files = files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect();
    std::fs::write(&config.initrd, cpio::archive(&files)).unwrap();
    let mut head = vec![0; 0x400];
    head[0x202..0x206].copy_from_slice(b"HdrS");
    head[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
    head[0x300..0x305].copy_from_slice(b"5.1.0");
    std::fs::write(&config.kernel, head).unwrap();
    config
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// What the second archive of an initramfs has.
fn added(config: &GuestConfig, first: &Path) -> BTreeSet<String> {
    let first_len = std::fs::read(first).unwrap().len();
    cpio::names(&std::fs::read(&config.initrd).unwrap()[first_len..]).unwrap()
}

#[test]
fn what_is_there_is_not_added_again() {
    let dir = tempfile::tempdir().unwrap();
    let config = guest(dir.path(), &[("modules/crc-x.ko", "m"), ("bin/mkfs.x", "p")]);
    let addition = Addition { modules: set(&["crc_x"]), programs: set(&["mkfs.x"]), ..Addition::default() };
    let mut same = config.clone();
    same.add(&addition, &dir.path().join("cache")).unwrap();
    assert_eq!(same.initrd, config.initrd);
}

#[test]
fn files_of_a_suite_follow_and_the_same_are_kept_once() {
    let dir = tempfile::tempdir().unwrap();
    let config = guest(dir.path(), &[("etc/modules", "old.ko\n")]);
    let files = dir.path().join("files");
    std::fs::create_dir(&files).unwrap();
    std::fs::write(files.join("own.ko"), "module").unwrap();
    std::fs::write(files.join("tool"), "#!/bin/sh\n").unwrap();
    let addition = Addition {
        modules: set(&["own.ko"]),
        programs: set(&["true"]),
        files: Some(files),
        ..Addition::default()
    };
    let (mut one, mut two) = (config.clone(), config.clone());
    let cache = dir.path().join("cache");
    one.add(&addition, &cache).unwrap();
    let names = added(&one, &config.initrd);
    for name in ["suite/own.ko", "suite/tool", "modules/own.ko", "etc/modules-suite", "bin/true"] {
        assert!(names.contains(name), "{name} in {names:?}");
    }
    assert!(!names.contains("etc/modules"), "those of the script's kernel are still loaded");
    assert!(names.iter().any(|name| name.contains("libc.so")), "libraries of a program: {names:?}");
    two.add(&addition, &cache).unwrap();
    assert_eq!(one.initrd, two.initrd);
    assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 1);
}

#[test]
fn another_kernel_does_not_load_the_modules_of_the_script() {
    let dir = tempfile::tempdir().unwrap();
    let config = guest(dir.path(), &[("etc/modules", "old.ko\n"), ("modules/xfs.ko", "old")]);
    let mut other = config.clone();
    let addition =
        Addition { kernel: Some(config.kernel.clone()), modules: set(&["xfs"]), ..Addition::default() };
    other.add(&addition, &dir.path().join("cache")).unwrap();
    assert!(added(&other, &config.initrd).contains("etc/modules"));
}

#[test]
fn headers_beside_a_kernel_are_not_its_modules() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a-headers", "linux-image", "z-headers"] {
        let modules = dir.path().join(name).join("lib/modules/6.1");
        std::fs::create_dir_all(&modules).unwrap();
        if name == "linux-image" {
            std::fs::write(modules.join(INDEX), "").unwrap();
        }
    }
    assert_eq!(unpacked(dir.path(), "6.1").unwrap(), dir.path().join("linux-image"));
    assert!(unpacked(dir.path(), "6.2").unwrap_err().to_string().contains("6.2"));
}

#[test]
fn what_is_lacking_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let config = guest(dir.path(), &[]);
    let files = dir.path().join("files");
    std::fs::create_dir(&files).unwrap();
    let said = |addition: &Addition| {
        let error = config.clone().add(addition, &dir.path().join("cache")).unwrap_err();
        error.to_string()
    };
    let some = |modules: &[&str], programs: &[&str]| Addition {
        modules: set(modules),
        programs: set(programs),
        files: Some(files.clone()),
        ..Addition::default()
    };
    assert!(said(&some(&["nova"], &[])).contains("has no modules of the kernel 5.1.0"));
    assert!(said(&some(&["nova.ko"], &[])).contains("nova.ko, which is not in its folder files"));
    assert!(said(&some(&[], &["mkfs.nowhere"])).contains("no program mkfs.nowhere"));
    std::os::unix::fs::symlink("/etc/passwd", files.join("link")).unwrap();
    assert!(said(&some(&[], &[])).contains("link: only ordinary files are expected"));
    std::fs::remove_file(files.join("link")).unwrap();
    std::fs::File::create(files.join("long")).unwrap().set_len(FILES_BYTES_MAX + 1).unwrap();
    assert!(said(&some(&[], &[])).contains("at most 67108864 are expected"));
    std::fs::write(&config.initrd, "packed").unwrap();
    assert!(said(&some(&[], &[])).contains("not a plain initramfs"));
    std::fs::remove_file(&config.initrd).unwrap();
    assert!(said(&some(&[], &[])).contains("run scripts/crash-guest"));
}

#[test]
fn what_a_kernel_would_ignore_is_no_more_of_the_initramfs() {
    let dir = tempfile::tempdir().unwrap();
    let config = guest(dir.path(), &[]);
    let more = dir.path().join("more");
    let added = |contents: &[u8]| {
        std::fs::write(&more, contents).unwrap();
        let addition = Addition { initrds: vec![more.clone()], ..Addition::default() };
        config.clone().add(&addition, &dir.path().join("cache"))
    };
    for contents in [&b""[..], b"root:x:0:0", b"07070"] {
        let error = added(contents).unwrap_err().to_string();
        assert!(error.contains("more") && error.contains("initramfs"), "{error}");
    }
    for contents in [&cpio::archive(&BTreeMap::new())[..], &[0x1f, 0x8b, 8, 0], b"BZh91AY"] {
        added(contents).unwrap();
    }
}
