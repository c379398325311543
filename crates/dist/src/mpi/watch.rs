//! Heartbeats: a thread of each rank that hears from the leader, and of the leader that hears from
//! all. MPI tells of no rank that hangs and of no link that is cut.
//!
//! The leader is rank 0 of the world. It tells the others which rank is gone.

use super::library::MpiLibrary;
use super::pair::Pair;
use super::piece::{self, PieceHeader};
use crate::call::RankCall;
use crate::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The tag of heartbeats, which no group has.
const TAG: i32 = 32_767;
/// Time between heartbeats.
const BEAT: Duration = Duration::from_millis(250);
/// Time between looks for those of others.
const LOOK: Duration = Duration::from_millis(10);
/// Said by a rank that ends and sends no more heartbeats.
const ENDS: u32 = u32::MAX;
/// Asks for a heartbeat at once.
const PING: u32 = u32::MAX - 1;
/// Time in which it is answered.
const ANSWER: Duration = Duration::from_millis(50);

/// The thread of a rank, which runs until it is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches the ranks of the world, each of which is gone after `limit` of silence. `on_gone`
    /// gets the first that is gone, on a thread of its own.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(
        library: &Arc<MpiLibrary>,
        limit: Duration,
        on_gone: impl FnOnce(Error) + Send + 'static,
    ) -> std::io::Result<Self> {
        let ends = Arc::new(AtomicBool::new(false));
        let (library, ended) = (library.clone(), ends.clone());
        let others = if library.rank == 0 { 1..library.ranks } else { 0..1 };
        let others = others.map(|rank| Other::new(&library, rank)).collect();
        let watcher = Watcher { library, others, limit, asked: None, has_told: false };
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        // It ends with the thread of heartbeats.
        let report = move || {
            if let Ok(error) = told.recv() {
                on_gone(error);
            }
        };
        std::thread::Builder::new().name("rank-lost".to_owned()).spawn(report)?;
        let thread = std::thread::Builder::new().name("heartbeats".to_owned());
        let thread = thread.spawn(move || watcher.run(&ended, &tell))?;
        Ok(Self { ends, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // The thread does not panic.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What the thread has.
struct Watcher {
    library: Arc<MpiLibrary>,
    others: Vec<Other>,
    limit: Duration,
    /// When the others were asked for a heartbeat.
    asked: Option<Instant>,
    /// Whether the first rank that is gone has been told.
    has_told: bool,
}

/// Another rank, as the thread sees it.
struct Other {
    rank: usize,
    pair: Pair,
    heard: Instant,
    /// Whether it asks for a heartbeat.
    asks: bool,
    /// Whether it has said that it ends, or is gone.
    has_ended: bool,
}

impl Other {
    fn new(library: &Arc<MpiLibrary>, rank: usize) -> Self {
        let pair = Pair::new(library, (rank, TAG), piece::HEADER + 4);
        Self { rank, pair, heard: Instant::now(), asks: false, has_ended: false }
    }

    /// Says `word`, unless the rank has not taken the last ones.
    fn say(&mut self, word: u32) -> Result<(), Error> {
        // A rank that ends waits for the end of this one.
        if self.has_ended && word != ENDS || self.pair.is_full()? {
            return Ok(());
        }
        let header = PieceHeader { call: RankCall::Send { length: 1 }, own: 0, values: 1 };
        self.pair.send(header, &[f32::from_bits(word)]).map(drop)
    }

    /// The last word that it has said since the last look.
    fn heard(&mut self) -> Result<Option<u32>, Error> {
        let mut last = None;
        while let Some((header, bytes)) = self.pair.look()? {
            let Some(PieceHeader { values: 1, .. }) = header else { continue };
            match piece::values(bytes, 1).next().map(f32::to_bits) {
                Some(PING) => {
                    self.asks = true;
                    last = last.or(Some(0));
                }
                Some(ENDS) => return Ok(Some(ENDS)),
                word => last = word,
            }
        }
        Ok(last)
    }
}

impl Watcher {
    /// Sends and hears heartbeats until the rank ends or another one is gone.
    fn run(mut self, ends: &AtomicBool, tell: &SyncSender<Error>) {
        let mut next = Instant::now();
        while !ends.load(Ordering::Relaxed) {
            let now = Instant::now();
            if self.library.marks.take_ping() {
                self.say(PING);
                self.asked = Some(now);
            }
            if now >= next {
                self.say(self.library.marks.word());
                next = now + BEAT;
            }
            if self.hear(now) {
                next = now;
            }
            self.check_answers(now);
            if !self.has_told
                && let Err(error) = self.library.marks.check()
            {
                self.has_told = true;
                // Nobody waits for it where the process ends.
                let _ = tell.try_send(error);
            }
            std::thread::sleep(LOOK);
        }
        self.say(ENDS);
        let has_ended = |other: &mut Other| other.has_ended && other.pair.is_sent().unwrap_or(true);
        // A rank that says nothing any more is not waited for.
        let until = Instant::now() + 2 * BEAT;
        while Instant::now() < until && !self.others.iter_mut().all(has_ended) {
            let _ = self.hear(Instant::now());
            std::thread::sleep(LOOK);
        }
    }

    fn say(&mut self, word: u32) {
        for other in &mut self.others {
            if other.say(word).is_err() {
                self.library.marks.mark(other.rank, other.heard.elapsed());
                other.has_ended = true;
            }
        }
    }

    /// Marks ranks that have not answered in time.
    fn check_answers(&mut self, now: Instant) {
        let Some(asked) = self.asked.filter(|asked| now > *asked + ANSWER) else { return };
        self.asked = None;
        for other in self.others.iter().filter(|other| !other.has_ended && other.heard < asked) {
            self.library.marks.mark(other.rank, now - other.heard);
        }
    }

    /// Takes what others have said. Returns whether one asks for a heartbeat.
    fn hear(&mut self, now: Instant) -> bool {
        let mut is_asked = false;
        for other in self.others.iter_mut().filter(|other| !other.has_ended) {
            match other.heard() {
                Ok(None) => {}
                Ok(Some(ENDS)) => other.has_ended = true,
                Ok(Some(word)) => {
                    other.heard = now;
                    self.library.marks.hear(word, self.limit);
                }
                Err(_) => {
                    self.library.marks.mark(other.rank, other.heard.elapsed());
                    other.has_ended = true;
                }
            }
            is_asked |= std::mem::take(&mut other.asks);
            let silence = now - other.heard;
            if silence > self.limit && !other.has_ended {
                self.library.marks.mark(other.rank, silence);
            }
        }
        is_asked
    }
}
