//! Writes traces of routes on a thread of its own.
//!
//! Invariant: steps never wait for the disk. What it cannot take is left out, with a warning.

use super::header::RouteHeader;
use backend::ExpertUse;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

/// Bytes handed to the thread at once.
const CHUNK: usize = 64 << 10;
/// Chunks that may wait to be written.
const WAITING: usize = 64;
/// Bytes that are kept here while chunks wait.
const MAX_KEPT: usize = 8 << 20;
/// What a trace begins with.
const START: &[u8] = b"{\"gannet_routes\":";

/// A trace that is being written.
#[derive(Debug)]
pub(crate) struct RouteWriter {
    path: PathBuf,
    /// Whole lines that were not handed over yet.
    lines: Vec<u8>,
    /// `None` once nothing more can be written.
    chunks: Option<SyncSender<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
    layers: Vec<u32>,
    has_left_out: bool,
}

impl RouteWriter {
    /// Creates the file, or replaces a trace.
    ///
    /// # Errors
    /// If a file is there that is no trace, or the file cannot be written.
    pub fn create(path: &Path, header: &RouteHeader) -> io::Result<Self> {
        if path.is_file() && !is_trace(path)? {
            let problem = "expected no file or a trace of routes, found another file";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
        }
        let mut lines = serde_json::to_vec(header)?;
        lines.push(b'\n');
        let file = File::create(path)?;
        let (chunks, waiting) = sync_channel(WAITING);
        let name = path.to_owned();
        let thread = std::thread::Builder::new().name("gannet-routes".into());
        let thread = thread.spawn(move || write_all(file, &name, &waiting))?;
        Ok(Self {
            path: path.to_owned(),
            lines,
            chunks: Some(chunks),
            thread: Some(thread),
            layers: header.layers.clone(),
            has_left_out: false,
        })
    }

    /// Writes what the rows of a step have chosen.
    pub fn step(&mut self, step: u64, uses: &[ExpertUse]) {
        if self.chunks.is_none() {
            return;
        }
        for layer in uses.chunk_by(|a, b| a.layer == b.layer) {
            let number = self.layers[layer[0].layer as usize];
            let _ = write!(self.lines, "[{step},{number}");
            for ExpertUse { expert, counted, others, .. } in layer {
                let _ = write!(self.lines, ",{expert},{counted},{others}");
            }
            self.lines.extend_from_slice(b"]\n");
        }
        if self.lines.len() >= CHUNK {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        let Some(chunks) = &self.chunks else { return };
        match chunks.try_send(std::mem::take(&mut self.lines)) {
            Ok(()) => {}
            Err(TrySendError::Disconnected(_)) => self.chunks = None,
            Err(TrySendError::Full(lines)) if lines.len() <= MAX_KEPT => self.lines = lines,
            Err(TrySendError::Full(_)) => {
                if !std::mem::replace(&mut self.has_left_out, true) {
                    let path = self.path.display();
                    tracing::warn!("{path}: steps are missing, the disk is too slow for the trace");
                }
            }
        }
    }
}

impl Drop for RouteWriter {
    fn drop(&mut self) {
        if let Some(chunks) = self.chunks.take() {
            // The thread has reported its own errors.
            let _ = chunks.send(std::mem::take(&mut self.lines));
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn is_trace(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    File::open(path)?.take(START.len() as u64).read_to_end(&mut start)?;
    Ok(start.is_empty() || start == START)
}

/// Writes chunks until one fails, which is reported once.
fn write_all(mut file: File, path: &Path, chunks: &Receiver<Vec<u8>>) {
    for chunk in chunks {
        if let Err(error) = file.write_all(&chunk) {
            let path = path.display();
            tracing::warn!("cannot write {path}: {error}; the trace of routes ends here");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::RouteTrace;
    use super::*;

    fn header() -> RouteHeader {
        RouteHeader {
            gannet_routes: 1,
            checkpoint: "ab".into(),
            model: "m".into(),
            layers: vec![2, 5],
            experts: 64,
            chosen: 2,
            slot_bytes: vec![4096; 2],
            read_bytes: vec![4000; 2],
        }
    }

    fn uses(step: u32) -> Vec<ExpertUse> {
        let expert = |layer, expert| ExpertUse { layer, expert, counted: 1, others: step % 3 };
        vec![expert(0, step % 64), expert(0, (step + 1) % 64), expert(1, step * 7 % 64)]
    }

    #[test]
    fn what_was_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("routes.jsonl");
        for steps in [0, 3, 20_000] {
            let mut writer = RouteWriter::create(&path, &header()).unwrap();
            (0..steps).for_each(|step| writer.step(u64::from(step), &uses(step)));
            drop(writer);
            let trace = RouteTrace::read(&path).unwrap();
            assert_eq!(trace.header, header());
            assert_eq!(trace.groups.len(), 2 * steps as usize);
            let all: Vec<_> = (0..steps).flat_map(uses).collect();
            let read = trace.groups.iter().flat_map(|group| {
                let layer = group.layer as u32;
                trace.entries[group.entries.clone()].iter().map(move |entry| ExpertUse {
                    layer,
                    expert: entry.expert,
                    counted: entry.counted,
                    others: entry.others,
                })
            });
            assert!(read.eq(all));
        }
    }

    #[test]
    fn no_other_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        std::fs::write(&path, b"GGUF").unwrap();
        let error = RouteWriter::create(&path, &header()).unwrap_err().to_string();
        assert!(error.contains("found another file"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"GGUF");
        assert!(RouteWriter::create(&folder.path().join("no/folder"), &header()).is_err());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_ends_the_trace_and_nothing_else() {
        let mut writer = RouteWriter::create(Path::new("/dev/full"), &header()).unwrap();
        let mut step = 0;
        while writer.chunks.is_some() {
            writer.step(u64::from(step), &uses(step));
            step += 1;
        }
        writer.step(u64::from(step), &uses(step));
        assert!(writer.lines.is_empty());
    }
}
