//! small-files DIR THREADS SECONDS [keep]: creates files of 1,000 bytes, makes each durable and removes it, or keeps it; a thread
//! each in a folder of its own. Prints how many a second.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn work(folder: &Path, time: Duration, keeps: bool) -> std::io::Result<u64> {
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < time {
        let path = folder.join(format!("{count}"));
        let mut file = File::create_new(&path)?;
        file.write_all(&[7; 1000])?;
        file.sync_all()?;
        drop(file);
        if !keeps {
            fs::remove_file(&path)?;
        }
        count += 1;
    }
    Ok(count)
}

fn main() -> std::io::Result<()> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [dir, threads, seconds, keep @ ..] = given.as_slice() else { panic!("small-files DIR THREADS SECONDS [keep]") };
    let keeps = !keep.is_empty();
    let (threads, seconds): (usize, u64) = (threads.parse().unwrap(), seconds.parse().unwrap());
    let folders: Vec<PathBuf> = (0..threads).map(|thread| Path::new(dir).join(format!("small-{thread}"))).collect();
    for folder in &folders {
        fs::create_dir_all(folder)?;
    }
    let start = Instant::now();
    let counts: Vec<std::io::Result<u64>> = std::thread::scope(|scope| {
        let start = |folder: &PathBuf| scope.spawn({ let folder = folder.clone(); move || work(&folder, Duration::from_secs(seconds), keeps) });
        let running: Vec<_> = folders.iter().map(start).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let total: u64 = counts.into_iter().sum::<std::io::Result<u64>>()?;
    println!("{:.0}", total as f64 / start.elapsed().as_secs_f64());
    Ok(())
}
