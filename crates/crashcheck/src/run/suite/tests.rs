use super::*;

const GOOD: &str = "\
[file-system.a]
type = \"afs\"
make = \"mkfs.a $PM\"
disk = \"2M\"
[file-system.b]
like = \"a\"
options = \"x\"
[[test]]
name = \"one\"
operations = [\"touch $M/a\"]
[[test]]
name = \"two\"
workload = \"two.j\"
[[test]]
name = \"three\"
program = \"mine $M\"
";
const WORKLOAD: &str = "# define\nA\n\n# run\nmark\nmkdir A 0777\ncheckpoint 1\n";

fn folder(text: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(SUITE_FILE), text).unwrap();
    std::fs::write(dir.path().join("two.j"), WORKLOAD).unwrap();
    dir
}

#[test]
fn the_built_in_suite_is_one_that_can_be_printed_and_read() {
    let dir = tempfile::tempdir().unwrap();
    let mine = dir.path().join("deep/mine");
    assert_eq!(Suite::print(&mine).unwrap(), mine.join(SUITE_FILE));
    let suite = Suite::read(&mine).unwrap();
    assert_eq!(suite, Suite::built_in().unwrap());
    let names: Vec<_> = suite.systems.keys().map(String::as_str).collect();
    assert_eq!(names, ["ext4-dax", "ext4-journal-on-pm", "xfs-dax", "xfs-log-on-pm"]);
    assert_eq!((suite.tests.len(), suite.pm_bytes), (18, Some(64 << 20)));
    // What was edited is not lost.
    let error = Suite::print(&mine).unwrap_err().to_string();
    assert!(error.contains("suite.toml"), "{error}");
}

#[test]
fn what_is_left_out_is_that_of_the_one_it_is_like_or_a_default() {
    let dir = folder(GOOD);
    std::fs::create_dir(dir.path().join("files")).unwrap();
    let suite = Suite::read(dir.path()).unwrap();
    let [a, b] = ["a", "b"].map(|name| &suite.systems[name]);
    assert_eq!(b, &FileSystem { options: "x".to_owned(), ..a.clone() });
    assert_eq!((a.disk_bytes, a.options.as_str(), a.settle.as_str()), (Some(2 << 20), "rw", "sync"));
    assert!(!a.is_synchronous);
    assert!(a.write.contains("$M") && a.state.contains("fs-dump"));
    assert_eq!(suite.files, Some(dir.path().join("files")));
    assert_eq!(suite.tests[0].prepare, "true");
    let Work::Workload(workload) = &suite.tests[1].work else { panic!("{:?}", suite.tests[1]) };
    assert_eq!(workload, &Workload::parse(WORKLOAD).unwrap());
    assert_eq!(suite.tests[2].work, Work::Program("mine $M".to_owned()));
}

#[test]
fn what_is_wrong_is_named_with_file_and_key() {
    for (from, to, said) in [
        ("type = \"afs\"\n", "", "file-system.a.type: the name that the kernel has"),
        ("make = \"mkfs.a $PM\"\n", "", "file-system.a.make: is missing; shell is expected"),
        ("make =", "mkae =", "unknown field `mkae`, expected"),
        ("make = \"mkfs.a $PM\"", "make = 1", "expected a string"),
        ("disk = \"2M\"", "disk = \"2X\"", "file-system.a.disk: 2X is not a size"),
        ("disk = \"2M\"", "disk = \"5\"", "file-system.a.disk: 5 bytes; whole MiB"),
        ("disk = \"2M\"", "disk = \"65G\"", "whole MiB up to 64G"),
        ("disk = \"2M\"", "modules = [\"../a\"]", "file-system.a.modules: \"../a\" is not the name"),
        ("disk = \"2M\"", "programs = [\"-x\"]", "file-system.a.programs: \"-x\" is not the name"),
        ("disk = \"2M\"", "make = \"x\"", "duplicate key"),
        ("disk = \"2M\"", "synchronous = 1", "expected a boolean"),
        (
            "disk = \"2M\"",
            "synchronous = true\nsettle = \"x\"",
            "file-system.a.settle: nothing has to settle",
        ),
        ("like = \"a\"", "like = \"c\"", "file-system.b.like: no file system of this file is called c"),
        ("like = \"a\"", "like = \"b\"", "file-system.b.like: b is like another one itself"),
        ("[file-system.a]", "pm = \"x\"\n[file-system.a]", "pm: x is not a size"),
        ("file-system.b", "file-system.\"b/../c\"", "a name has letters, digits"),
        ("name = \"one\"", "name = \"../one\"", "test 1 (\"../one\").name: letters, digits"),
        ("name = \"two\"", "name = \"one\"", "test 2 (\"one\").name: another test has it"),
        ("[\"touch $M/a\"]", "[]", "test 1 (\"one\").operations: there are 0"),
        ("program = ", "operations = [\"a\"]\nprogram = ", "exactly one of `operations`"),
        ("two.j", "/etc/passwd", "workload: \"/etc/passwd\": a file beside suite.toml"),
        ("two.j", "three.j", "three.j: No such file"),
        ("workload = \"two.j\"", "workload = \"suite.toml\"", "test 2 (\"two\").workload: "),
    ] {
        let dir = folder(&GOOD.replacen(from, to, 1));
        let error = Suite::read(dir.path()).unwrap_err().to_string();
        assert!(error.contains(said) && error.contains(SUITE_FILE), "{said:?} in {error}");
    }
    let long = "x".repeat(SCRIPT_BYTES_MAX + 1);
    let dir = folder(&GOOD.replacen("mkfs.a $PM", &long, 1));
    assert!(Suite::read(dir.path()).unwrap_err().to_string().contains("file-system.a.make: 16385 bytes"));
    let dir = folder(&"#".repeat(FILE_BYTES_MAX as usize + 1));
    let error = Suite::read(dir.path()).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("more than 1048576 bytes"), "{source}");
    let dir = tempfile::tempdir().unwrap();
    assert!(Suite::read(dir.path()).unwrap_err().to_string().contains(SUITE_FILE));
}

#[test]
fn what_is_said_of_a_hostile_file_is_short() {
    for text in [format!("pm = \"64M\"\nx = {}", "[".repeat(100_000)), format!("{} = 1", "a".repeat(100_000))]
    {
        let error = Suite::read(folder(&text).path()).unwrap_err().to_string();
        assert!(error.contains("suite.toml: ") && error.contains("line "), "{error}");
        assert!(error.len() < 2000, "{} bytes", error.len());
    }
}
