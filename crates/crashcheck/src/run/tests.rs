use super::*;
use crate::explain::Exclusion;

const GOOD: &str = "\
name = \"journal\"
[[pm]]
name = \"pool\"
size = \"1M\"
[[pm]]
name = \"log\"
size = 4096
[trace]
command = [\"./journal\", \"{pm}\"]
[recover]
command = [\"./journal\", \"show\", \"{pm}\"]
";

#[test]
fn a_configuration_is_read_and_the_rest_has_defaults() {
    let test = Test::parse(GOOD).unwrap();
    assert_eq!(test.pm.iter().map(|pm| pm.size).collect::<Vec<_>>(), [1 << 20, 4096]);
    assert_eq!((test.trace.timeout_s, test.trace.stacks), (60, false));
    assert_eq!(test.images, ImagesConfig::default());
    let more = format!(
        "{GOOD}[images]\npersistence = \"eadr\"\npick = \"fast\"\nper_point = 9\nnon_temporal = \"partial\"\n[oracle]\nprefix = true\n"
    );
    let test = Test::parse(&more).unwrap();
    assert_eq!((test.images.persistence, test.images.pick), (PersistenceConfig::Eadr, PickConfig::Fast));
    assert_eq!((test.images.per_point, test.images.non_temporal), (9, NonTemporalConfig::Partial));
    assert!(test.oracle.prefix && test.hints.exclude.is_empty());
    assert_eq!((test.recover.crashes, test.recover.per_point), (0, 16));
    let test = Test::parse(&GOOD.replacen("[recover]", "[recover]\ncrashes = 2\nper_point = 3", 1)).unwrap();
    assert_eq!((test.recover.crashes, test.recover.per_point), (2, 3));
    let test = Test::parse(&format!("{GOOD}[hints]\nexclude = [\"log:0-4K\", \"persist\"]\n")).unwrap();
    let header = Exclusion::Range { region: Some("log".to_owned()), bytes: 0..4096 };
    assert_eq!(test.hints.exclude, [header, Exclusion::Name("persist".to_owned())]);
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    for (from, to, said) in [
        ("size = \"1M\"", "size = \"1X\"", "1X is not a size"),
        ("size = \"1M\"", "size = \"99999999999G\"", "is not a size"),
        ("size = \"1M\"", "size = 0", "size of pool: 0"),
        ("name = \"journal\"", "name = \"../x\"", "letters, digits"),
        ("name = \"journal\"", "name = \"..\"", "letters, digits"),
        ("name = \"pool\"", "name = \"../pool\"", "letters, digits"),
        ("name = \"pool\"", "name = \"/etc/pool\"", "letters, digits"),
        ("name = \"pool\"", "name = \"log\"", "two files of persistent memory have the name log"),
        ("[recover]", "[recovr]", "recovr"),
        ("command = [\"./journal\", \"{pm}\"]", "command = []", "a command is empty"),
        ("[trace]", "[images]\nper_point = 0\n[trace]", "per_point: 0"),
        ("[recover]", "[recover]\nper_point = 0", "at least 1 image per_point"),
        ("[recover]", "[recover]\ncrashes = 101", "at most 100 crashes"),
        ("[trace]", "[hints]\nexclude = [\"64-0\"]\n[trace]", "the range 64-0 is empty"),
        ("[trace]", "[trace]\nshould = 1", "line 9"),
    ] {
        let text = GOOD.replacen(from, to, 1);
        let error = Test::parse(&text).unwrap_err();
        assert!(error.contains(said), "{said:?} in {error}");
    }
}

#[test]
fn names_of_files_are_relative_to_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.toml");
    std::fs::write(&path, GOOD).unwrap();
    assert_eq!(Test::read(&path).unwrap().dir, dir.path());
    std::fs::write(&path, "name = 1").unwrap();
    let error = Test::read(&path).unwrap_err().to_string();
    assert!(error.contains("journal.toml") && error.contains("line 1"), "{error}");
    let error = Test::read(&dir.path().join("none.toml")).unwrap_err();
    assert!(error.to_string().contains("none.toml"), "{error}");
}

#[test]
fn the_log_of_operations_needs_its_place() {
    let test = |command: &str, oracle: &str| {
        let text = GOOD.replacen("\"{pm}\"]", command, 1);
        Test::parse(&format!("{text}[oracle]\n{oracle}\n")).map(|test| test.oracle.operations)
    };
    let named = "\"{pm}\", \"log={operations}\"]";
    assert_eq!(test(named, "operations = \"file\""), Ok(Some(OperationsConfig::File)));
    assert_eq!(test("\"{pm}\"]", "operations = \"stdout\""), Ok(Some(OperationsConfig::Stdout)));
    let error = test("\"{pm}\"]", "operations = \"file\"").unwrap_err();
    assert!(error.contains("the command must have {operations}"), "{error}");
    assert!(test(named, "operations = \"instruction\"").is_err() && test(named, "").is_err());
    assert!(test(named, "prefix = true\noperations = \"file\"").unwrap_err().contains("either records"));
}
