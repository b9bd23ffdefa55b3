use super::*;

fn tracer(pm: &[(&Path, Option<u64>)]) -> UserTracer {
    let pm = pm.iter().map(|(path, len_bytes)| PmFile { path: (*path).to_owned(), len_bytes: *len_bytes });
    UserTracer {
        pm: pm.collect(),
        has_reads: true,
        has_stacks: false,
        timeout: Duration::from_secs(10),
        input: None,
        output: None,
        operations: None,
        coverage: None,
        current_dir: None,
        tools: Tools { qemu_user: "/nonexistent/qemu".into(), plugin: "/nonexistent/plugin.so".into() },
    }
}

#[test]
fn commas_in_paths_are_doubled() {
    let tracer = tracer(&[(Path::new("/a,b"), None), (Path::new("c"), None)]);
    let option = tracer.plugin_option(Path::new("p.so"), Path::new("t,")).unwrap();
    assert_eq!(option, "p.so,out=t,,,pm=/a,,b,pm=c,reads=on,with_parent=on");
}

#[test]
fn files_are_made_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pm");
    let make = |len_bytes| PmFile { path: path.clone(), len_bytes }.make();
    assert!(matches!(make(None), Err(TracerError::NoSize(_))));
    make(Some(8192)).unwrap();
    assert_eq!(path.metadata().unwrap().len(), 8192);
    make(Some(8192)).unwrap();
    make(None).unwrap();
    assert!(matches!(make(Some(1)), Err(TracerError::Size { expected: 1, actual: 8192, .. })));
}

#[test]
fn requests_that_lack_something_are_refused() {
    let nothing = |tracer: UserTracer, command: &[OsString]| {
        matches!(tracer.trace(command, Path::new("/nonexistent/t")), Err(TracerError::Nothing(_)))
    };
    assert!(nothing(tracer(&[]), &["true".into()]));
    assert!(nothing(tracer(&[(Path::new("pm"), None)]), &[]));
}
