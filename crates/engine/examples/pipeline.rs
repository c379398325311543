//! How well a pipeline keeps its stages at work: `cargo run --release -p gannet-engine --example
//! pipeline`.
//!
//! Stages are threads with the layers of the built-in model, which take next to no time; before a
//! stage hands its rows on, it sleeps as long as a large model would compute. A link between stages
//! delays messages by a latency and by their bytes over a rate. The ratio is that of the time that
//! the slowest stage would take, back to back, to the time that all took.
//!
//! With the path of a model, which nothing delays, the part of a step that rank 0 takes to plan it,
//! to send messages and to hand out tokens, with two stages of one thread.

use base::Profile;
use dist::{Comm, Error, Local, Traffic};
use engine::{
    EngineHandle, EngineOptions, Event, Follower, Generation, LoadOptions, Request, Runner,
    Speculate, start,
};
use formats::{Checkpoint, OpenOptions};
use models::Ranks;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
/// Time of a stage for a step of decoding, and of a chunk of a prompt, beside which the time of the
/// built-in model is small.
const WORK: Duration = Duration::from_millis(10);
const CHUNK_WORK: Duration = Duration::from_millis(500);
/// 10 Gbit/s.
const BYTES_PER_SECOND: f64 = 1.25e9;
const LATENCY: Duration = Duration::from_micros(50);
const SEQUENCES: usize = 16;
const DECODED: usize = 64;
const PROMPT: usize = 8192;
const CHUNK: usize = 512;
const RUNS: usize = 3;

/// A rank whose messages to others take time.
struct Link {
    inner: Arc<dyn Comm>,
    /// Time before each message, and before those of groups that split off.
    work: Duration,
    split_work: Duration,
    zero: Instant,
    /// When the last message to each rank has left, since `zero`.
    free: Mutex<Vec<Duration>>,
}

impl Link {
    fn new(inner: Arc<dyn Comm>, work: [Duration; 2], zero: Instant) -> Self {
        let free = Mutex::new(vec![Duration::ZERO; inner.ranks()]);
        Self { inner, work: work[0], split_work: work[1], zero, free }
    }

    /// When a message of so many bytes to a rank arrives.
    fn arrival(&self, to: usize, bytes: usize) -> Duration {
        let mut free = self.free.lock().unwrap();
        let begins = self.zero.elapsed().max(free[to]);
        free[to] = begins + Duration::from_secs_f64(bytes as f64 / BYTES_PER_SECOND);
        free[to] + LATENCY
    }
}

impl Comm for Link {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn ranks(&self) -> usize {
        self.inner.ranks()
    }

    fn all_reduce_sum(&self, values: &mut [f32]) -> Result<(), Error> {
        self.inner.all_reduce_sum(values)
    }

    fn all_gather(&self, own: &[f32], all: &mut [f32]) -> Result<(), Error> {
        self.inner.all_gather(own, all)
    }

    fn broadcast(&self, root: usize, values: &mut [f32]) -> Result<(), Error> {
        self.inner.broadcast(root, values)
    }

    fn send(&self, to: usize, values: &[f32]) -> Result<(), Error> {
        std::thread::sleep(self.work);
        let arrival = self.arrival(to, 4 * values.len()).as_nanos() as u64;
        let halves = [(arrival >> 32) as u32, arrival as u32].map(f32::from_bits);
        self.inner.send(to, &halves)?;
        self.inner.send(to, values)
    }

    fn receive(&self, from: usize, values: &mut [f32]) -> Result<(), Error> {
        let mut halves = [0.0; 2];
        self.inner.receive(from, &mut halves)?;
        let [high, low] = halves.map(|half: f32| u64::from(half.to_bits()));
        self.inner.receive(from, values)?;
        let arrival = Duration::from_nanos(high << 32 | low);
        std::thread::sleep(arrival.saturating_sub(self.zero.elapsed()));
        Ok(())
    }

    fn barrier(&self) -> Result<(), Error> {
        self.inner.barrier()
    }

    fn split(&self, colour: usize, key: usize) -> Result<Arc<dyn Comm>, Error> {
        let (inner, work) = (self.inner.split(colour, key)?, self.split_work);
        Ok(Arc::new(Self::new(inner, [work, work], self.zero)))
    }

    fn traffic(&self) -> Traffic {
        self.inner.traffic()
    }
}

/// The built-in model with a context that is long enough.
fn model() -> std::io::Result<tempfile::TempDir> {
    let (folder, from) = (tempfile::tempdir()?, Path::new(MODEL));
    let config = std::fs::read_to_string(from.join("config.json"))?;
    let context = "\"max_position_embeddings\": ";
    let longer = config.replace(&format!("{context}2048"), &format!("{context}{}", 2 * PROMPT));
    std::fs::write(folder.path().join("config.json"), longer)?;
    std::fs::copy(from.join("model.safetensors"), folder.path().join("model.safetensors"))?;
    Ok(folder)
}

/// How the stages of an engine compute.
#[derive(Clone, Copy)]
struct Stages<'a> {
    model: &'a Path,
    count: usize,
    in_flight: usize,
    /// Time before each message between stages.
    work: Duration,
    /// Takes the times of operations of the first.
    profile: Option<&'a Arc<Profile>>,
}

/// Does `work` with an engine of several stages.
fn with_stages<T: Send>(
    Stages { model, count, in_flight, work: each, profile }: Stages<'_>,
    work: impl Fn(&EngineHandle) -> T + Sync,
) -> T {
    let (work, zero) = (&work, Instant::now());
    std::thread::scope(|scope| {
        let ranks = Local::group(count).into_iter().map(|world| {
            scope.spawn(move || {
                let leads = world.rank() == 0;
                let link = Link::new(Arc::new(world), [Duration::ZERO, each], zero);
                let ranks = Ranks::grid(Arc::new(link), 1, ("", &[])).unwrap();
                let options = LoadOptions {
                    threads: 1,
                    chunk: Some(CHUNK),
                    logit_rows: 2 * SEQUENCES,
                    parallel: SEQUENCES,
                    context: Some(PROMPT + 2 * DECODED),
                    ranks: ranks.with_in_flight(Some(in_flight)),
                    ..LoadOptions::default()
                };
                let checkpoint = Checkpoint::open(model, &OpenOptions::default());
                let mut runner = Runner::load(&checkpoint.unwrap(), &options).unwrap();
                drop(options);
                if !leads {
                    Follower::new(runner).run().unwrap();
                    return None;
                }
                runner.profile(profile.cloned());
                let options = EngineOptions {
                    running: SEQUENCES,
                    itl_target: Duration::from_secs(3600),
                    speculate: Speculate::Off,
                    ..EngineOptions::default()
                };
                let (engine, thread) = start(runner, options);
                let found = work(&engine);
                drop(engine);
                thread.join().unwrap();
                Some(found)
            })
        });
        let ranks: Vec<_> = ranks.collect();
        let found = ranks.into_iter().filter_map(|rank| rank.join().unwrap());
        found.collect::<Vec<_>>().remove(0)
    })
}

fn submit(engine: &EngineHandle, prompt: Vec<u32>, tokens: usize) -> Generation {
    let (min_tokens, max_tokens) = (tokens, Some(tokens));
    engine
        .submit(Request { prompt, min_tokens, max_tokens, ..Request::default() })
        .expect("the queue has room")
}

/// Waits for the end, and gives the time of the first token and of the last.
fn times(mut generation: Generation) -> (Instant, Instant) {
    let mut first = None;
    loop {
        match generation.next_blocking().expect("an end") {
            Event::Token { .. } => {
                first.get_or_insert_with(Instant::now);
            }
            Event::Finished(_) => return (first.expect("a token"), Instant::now()),
            _ => {}
        }
    }
}

/// Seconds from when so many sequences decode to the end.
fn decode(engine: &EngineHandle, sequences: usize) -> f64 {
    let prompt = |at: usize| vec![at as u32 + 1; 4];
    let all: Vec<_> = (0..sequences).map(|at| submit(engine, prompt(at), DECODED)).collect();
    let waits = all.into_iter().map(|one| std::thread::spawn(move || times(one)));
    let waits: Vec<_> = waits.collect();
    let all: Vec<_> = waits.into_iter().map(|wait| wait.join().unwrap()).collect();
    let begun = all.iter().map(|(first, _)| *first).max().unwrap();
    let ended = all.iter().map(|(_, last)| *last).max().unwrap();
    (ended - begun).as_secs_f64()
}

/// Seconds of a long prompt.
fn prefill(engine: &EngineHandle) -> f64 {
    let begun = Instant::now();
    let prompt = (0..PROMPT).map(|at| (at % 97) as u32 + 1).collect();
    (times(submit(engine, prompt, 1)).0 - begun).as_secs_f64()
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Prints the part of the time of steps of `sequences` sequences that rank 0 takes to lead.
fn leads(model: &Path, sequences: usize, out: &mut impl Write) -> std::io::Result<()> {
    let profile = Arc::new(Profile::default());
    let (count, work) = (2, Duration::ZERO);
    let stages = Stages { model, count, in_flight: count, work, profile: Some(&profile) };
    let took = with_stages(stages, |engine| {
        decode(engine, sequences);
        profile.take();
        decode(engine, sequences)
    });
    let times = profile.take();
    let of = |names: &[&str]| -> f64 {
        let named = times.iter().filter(|it| names.contains(&&*it.name));
        named.map(|it| it.wall.as_secs_f64()).sum()
    };
    // Messages are sent after masks are asked for.
    let own = of(&["drain", "plan", "batch", "request_masks", "commit", "emit"]);
    writeln!(
        out,
        "{sequences} sequences: {:.2} % of {took:.2} s, and {:.2} % for sampling",
        100.0 * own / took,
        100.0 * of(&["sample"]) / took
    )
}

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout();
    if let Some(model) = std::env::args_os().nth(1) {
        for sequences in [1, SEQUENCES] {
            leads(Path::new(&model), sequences, &mut out)?;
        }
        return Ok(());
    }
    let folder = model()?;
    let model = folder.path();
    let took = |(count, in_flight), work, measure: &(dyn Fn(&EngineHandle) -> f64 + Sync)| {
        let stages = Stages { model, count, in_flight, work, profile: None };
        median((0..RUNS).map(|_| with_stages(stages, measure)).collect())
    };
    for count in [2, 4] {
        let took = |in_flight| took((count, in_flight), WORK, &|it| decode(it, SEQUENCES));
        // Each token of each sequence is part of one step, of which there are as many as stages.
        let busy = WORK.as_secs_f64() * (count * (DECODED - 1)) as f64;
        let (one, all) = (took(1), took(count));
        writeln!(
            out,
            "{count} stages, {SEQUENCES} sequences: {:.3} of the slowest stage back to back; one \
             step at a time takes {:.2} times as long",
            busy / all,
            one / all
        )?;
    }
    let took = |in_flight| took((2, in_flight), CHUNK_WORK, &prefill);
    let (one, two) = (took(1), took(2));
    writeln!(
        out,
        "2 stages, a prompt of {PROMPT} tokens: {:.2} times as fast as with one step at a time, \
         which takes {one:.3} s",
        one / two
    )
}
