use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::*;

/// A folder, and nodes of it that keep eight descriptors.
struct Folder {
    dir: TempDir,
    nodes: Nodes,
}

fn open_descriptors(below: &Path) -> usize {
    let links =
        fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    links.filter(|target| target.starts_with(below) && target != below).count()
}

impl Folder {
    fn new() -> Folder {
        let dir = tempfile::tempdir().unwrap();
        let descriptors = Arc::new(Descriptors::of(128));
        let nodes = Nodes::new(File::open(dir.path()).unwrap(), descriptors).unwrap();
        Folder { dir, nodes }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn make(&self, name: &str) -> u64 {
        fs::write(self.path(name), name).unwrap();
        self.find(ROOT, name)
    }

    fn find(&self, parent: u64, name: &str) -> u64 {
        let directory = self.nodes.get(parent).unwrap();
        self.nodes.find(parent, &directory, name.as_ref()).unwrap().1.ino()
    }

    /// What the file has that is known by this number.
    fn says(&self, number: u64) -> Reply<String> {
        let node = self.nodes.get(number)?;
        Ok(fs::read_to_string(node.path()).unwrap())
    }

    /// Other files are used so much that no descriptor is kept of those of before.
    fn use_others(&self) {
        for turn in 0..2 {
            for number in 0..20 {
                self.make(&format!("other{turn}-{number}"));
            }
        }
    }

    fn change(&self, parent: u64, name: &str, act: impl FnOnce(), after: &[(u64, &str)]) {
        let directory = self.nodes.get(parent).unwrap();
        let taken = self.nodes.take(&directory, name.as_ref()).unwrap().expect("it is known");
        act();
        let nodes: Vec<_> = after.iter().map(|(parent, _)| self.nodes.get(*parent).unwrap()).collect();
        let places = nodes.iter().zip(after);
        let places: Vec<_> =
            places.map(|(node, (parent, name))| (*parent, &**node, OsStr::new(*name))).collect();
        self.nodes.look_again(&taken, &places);
    }
}

#[test]
fn more_files_are_known_than_are_held() {
    let folder = Folder::new();
    fs::create_dir(folder.path("sub")).unwrap();
    let sub = folder.find(ROOT, "sub");
    let files: Vec<_> = (0..200).map(|at| (folder.make(&at.to_string()), at.to_string())).collect();
    fs::write(folder.path("sub/below"), "below").unwrap();
    let below = folder.find(sub, "below");
    folder.use_others();
    for (number, text) in &files {
        assert_eq!(folder.says(*number).unwrap(), *text);
    }
    assert_eq!(folder.says(below).unwrap(), "below");
    assert_eq!(folder.says(below).unwrap(), "below", "what is held");
    assert_eq!(open_descriptors(folder.dir.path()), 8);
    files.iter().for_each(|(number, _)| folder.nodes.forget(*number, 1));
    assert_eq!(folder.says(files[0].0).unwrap_err(), Errno::STALE);
    assert!(lock(&folder.nodes.table).turns.len() <= 8 && open_descriptors(folder.dir.path()) <= 8);
}

#[test]
fn those_that_are_used_are_held() {
    let folder = Folder::new();
    let used = folder.make("used");
    for number in 0..100 {
        folder.make(&number.to_string());
        folder.nodes.get(used).unwrap();
    }
    assert!(lock(&folder.nodes.table).known[&used].kept.is_some());
}

#[test]
fn a_file_is_found_after_it_was_renamed_with_its_directory() {
    let folder = Folder::new();
    fs::create_dir(folder.path("sub")).unwrap();
    let (sub, file) = (folder.find(ROOT, "sub"), folder.make("file"));
    let rename = |from: &str, to: &str| fs::rename(folder.path(from), folder.path(to)).unwrap();
    folder.change(ROOT, "file", || rename("file", "sub/moved"), &[(sub, "moved"), (ROOT, "file")]);
    folder.change(ROOT, "sub", || rename("sub", "elsewhere"), &[(ROOT, "elsewhere"), (ROOT, "sub")]);
    folder.use_others();
    assert_eq!(folder.says(file).unwrap(), "file");
    // One that failed changes nothing.
    folder.change(sub, "moved", || {}, &[(ROOT, "nowhere"), (sub, "moved")]);
    folder.use_others();
    assert_eq!(folder.says(file).unwrap(), "file");
}

#[test]
fn what_has_lost_its_name_is_held_until_it_has_one_again() {
    let folder = Folder::new();
    let (first, second) = (folder.make("first"), folder.make("second"));
    folder.change(ROOT, "first", || fs::remove_file(folder.path("first")).unwrap(), &[(ROOT, "first")]);
    fs::hard_link(folder.path("second"), folder.path("other")).unwrap();
    folder.change(ROOT, "second", || fs::remove_file(folder.path("second")).unwrap(), &[(ROOT, "second")]);
    folder.use_others();
    assert_eq!(
        (folder.says(first).unwrap(), folder.says(second).unwrap()),
        ("first".into(), "second".into())
    );
    assert_eq!(folder.find(ROOT, "other"), second);
    folder.use_others();
    assert!(lock(&folder.nodes.table).known[&second].kept.is_none(), "it has a name");
    assert_eq!(folder.says(second).unwrap(), "second");
    folder.nodes.forget(first, 1);
    assert_eq!(folder.says(first).unwrap_err(), Errno::STALE);
    assert_eq!(open_descriptors(folder.dir.path()), 8);
}

#[test]
fn what_was_changed_past_the_mount_is_stale_and_never_another_file() {
    let folder = Folder::new();
    let (gone, replaced) = (folder.make("gone"), folder.make("replaced"));
    folder.use_others();
    fs::remove_file(folder.path("gone")).unwrap();
    fs::write(folder.path("new"), "new").unwrap();
    fs::rename(folder.path("new"), folder.path("replaced")).unwrap();
    assert_eq!(folder.says(gone).unwrap_err(), Errno::STALE);
    assert_eq!(folder.says(replaced).unwrap_err(), Errno::STALE);
    // Its number may be that of a new file, which the kernel is told of.
    let now = folder.find(ROOT, "replaced");
    assert_eq!(folder.says(now).unwrap(), "new");
    // A birth that is another one is another file.
    lock(&folder.nodes.table).known.get_mut(&now).unwrap().id.generation ^= 1;
    folder.use_others();
    assert_eq!(folder.says(now).unwrap_err(), Errno::STALE);
    folder.find(ROOT, "replaced");
    assert_eq!(folder.says(now).unwrap(), "new");
}

#[test]
fn the_directory_above_is_no_name_of_it() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("sub/deep")).unwrap();
    let sub = folder.find(ROOT, "sub");
    let deep = folder.find(sub, "deep");
    assert_eq!(folder.find(deep, ".."), sub);
    folder.use_others();
    assert_eq!(folder.nodes.get(sub).unwrap().metadata().unwrap().ino(), sub);
    assert_eq!(folder.nodes.get(deep).unwrap().metadata().unwrap().ino(), deep);
}

/// Threads look for files whose names are changed by others all the time.
#[test]
fn a_file_that_is_being_renamed_is_found() {
    const ROUNDS: usize = 2000;
    let folder = Folder::new();
    let numbers: Vec<_> = (0..16).map(|at| folder.make(&format!("{at}a"))).collect();
    std::thread::scope(|scope| {
        for part in 0..4 {
            let folder = &folder;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let at = round % 4 * 4 + part;
                    let suffix = |round: usize| if (round / 4).is_multiple_of(2) { "a" } else { "b" };
                    let from = format!("{at}{}", suffix(round));
                    let to = format!("{at}{}", suffix(round + 4));
                    let rename = || fs::rename(folder.path(&from), folder.path(&to)).unwrap();
                    folder.change(ROOT, &from, rename, &[(ROOT, &to), (ROOT, &from)]);
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    let at = round % numbers.len();
                    assert_eq!(folder.says(numbers[at]).unwrap(), format!("{at}a"));
                }
            });
        }
    });
}

#[test]
fn a_file_is_named_by_where_it_was_found() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("a/b")).unwrap();
    fs::write(folder.path("a/b/c"), "").unwrap();
    let id = Stat::from(&fs::metadata(folder.path("a/b/c")).unwrap()).id;
    assert_eq!(folder.nodes.place(id), None, "nobody has looked it up");
    let below = folder.find(folder.find(ROOT, "a"), "b");
    folder.find(below, "c");
    assert_eq!(folder.nodes.place(id), Some("a/b/c".into()));
    assert_eq!(folder.nodes.place(FileId { generation: id.generation + 1, ..id }), None, "another file");
}
