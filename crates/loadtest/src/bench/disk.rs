//! What a disk gives to reads past the page cache, with threads and sizes as streamed experts have
//! them.

use anyhow::{Context, Result, bail};
use base::{AlignedVec, DirectFile, PageVec, ReadJob, ReadPool, Rng, Urgency};
use serde::Serialize;
use std::fmt::Write;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Reads that wait for each thread, so that none waits for the next.
const WAITING: usize = 2;
/// Most bytes of a read.
const MAX_READ: usize = 1 << 30;

/// How a disk is measured.
#[derive(Clone, Copy, Debug)]
pub struct DiskPlan {
    /// Threads that read.
    pub threads: usize,
    /// Bytes of a read.
    pub read_bytes: usize,
    /// Time of each measurement.
    pub time: Duration,
}

/// Rates of reads past the page cache.
#[derive(Clone, Debug, Serialize)]
pub struct DiskRates {
    #[serde(serialize_with = "formats::serialize_path")]
    file: PathBuf,
    /// Whether reads passed the page cache; otherwise the file system has no such reads, and the
    /// rates may be those of memory.
    direct: bool,
    threads: usize,
    read_bytes: usize,
    /// Reads of random places.
    pub(super) random_gbs: f64,
    /// Reads one after the other.
    sequential_gbs: f64,
}

/// Measures reads of a file.
///
/// # Errors
///
/// If the file is empty or cannot be read.
pub fn bench_disk(path: &Path, plan: &DiskPlan) -> Result<DiskRates> {
    let cannot = || format!("cannot read {}", path.display());
    let file = Arc::new(DirectFile::open(path).with_context(cannot)?);
    let len = path.metadata().with_context(cannot)?.len();
    if len == 0 {
        bail!("{}: expected a file with contents, found an empty one", path.display());
    }
    let read = plan.read_bytes.clamp(1, MAX_READ).min(usize::try_from(len)?);
    let places = len / read as u64;
    let range = |place: u64| place * read as u64..(place + 1) * read as u64;
    let mut rng = Rng::new(1);
    let random = rate(&file, plan, read, || range(rng.below(places))).with_context(cannot)?;
    let mut next = 0..;
    let in_order = || range(next.next().unwrap_or(0) % places);
    let sequential = rate(&file, plan, read, in_order).with_context(cannot)?;
    Ok(DiskRates {
        file: path.to_owned(),
        direct: file.is_direct(),
        threads: plan.threads,
        read_bytes: read,
        random_gbs: random,
        sequential_gbs: sequential,
    })
}

/// A read, whose memory is used again.
struct RawRead {
    file: Arc<DirectFile>,
    range: Range<u64>,
    memory: PageVec,
    result: io::Result<()>,
}

impl ReadJob for RawRead {
    fn run(&mut self, _scratch: &mut AlignedVec<u8>) {
        self.result = self.file.read(&self.range, &mut self.memory).map(drop);
    }
}

/// Bytes read per second, in GB, of the ranges that `next` gives, each of `read` bytes.
fn rate(
    file: &Arc<DirectFile>,
    plan: &DiskPlan,
    read: usize,
    mut next: impl FnMut() -> Range<u64>,
) -> Result<f64> {
    let jobs = plan.threads.max(1) * WAITING;
    let pool = ReadPool::new(plan.threads, jobs)?;
    // A read begins and ends with whole units of the file system.
    let unit = file.covering(&(0..1)).end as usize;
    let start = Instant::now();
    for _ in 0..jobs {
        let memory = PageVec::zeroed(read + 2 * unit)?;
        let file = Arc::clone(file);
        pool.submit(Urgency::Now, RawRead { file, range: next(), memory, result: Ok(()) });
    }
    let mut bytes = 0;
    while let Some(mut job) = pool.wait_finished() {
        std::mem::replace(&mut job.result, Ok(()))?;
        bytes += job.range.end - job.range.start;
        if start.elapsed() < plan.time {
            job.range = next();
            pool.submit(Urgency::Now, job);
        }
    }
    Ok(bytes as f64 / start.elapsed().as_secs_f64() / 1e9)
}

impl DiskRates {
    /// The rates as text.
    pub fn to_text(&self) -> String {
        let Self { file, direct, threads, read_bytes, random_gbs, sequential_gbs } = self;
        let mut text = format!(
            "disk of {}: {random_gbs:.2} GB/s at random, {sequential_gbs:.2} GB/s in order; reads of \
             {:.2} MiB by {threads} threads",
            file.display(),
            *read_bytes as f64 / f64::from(1 << 20)
        );
        if !direct {
            let _ = write!(text, ", through the page cache, because the file system has no others");
        }
        text.push('\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_measured_of_any_file_that_is_not_empty() {
        let path = std::env::temp_dir().join(format!("gannet-disk-{}", std::process::id()));
        let plan =
            |read_bytes| DiskPlan { threads: 3, read_bytes, time: Duration::from_millis(20) };
        std::fs::write(&path, b"").unwrap();
        let error = bench_disk(&path, &plan(10)).unwrap_err().to_string();
        assert!(error.contains("empty"), "{error}");
        std::fs::write(&path, vec![7; 300_001]).unwrap();
        for (wanted, found) in [(1, 1), (4096, 4096), (100_000, 100_000), (1 << 22, 300_001)] {
            let rates = bench_disk(&path, &plan(wanted)).unwrap();
            assert_eq!((rates.read_bytes, rates.threads), (found, 3));
            assert!(rates.random_gbs > 0.0 && rates.sequential_gbs > 0.0);
            assert!(rates.to_text().contains("gannet-disk"));
        }
        std::fs::remove_file(&path).unwrap();
        assert!(bench_disk(&path, &plan(10)).is_err());
    }
}
