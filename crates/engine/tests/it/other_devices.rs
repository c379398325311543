//! Devices beside the CPU: rules name the one in use, and one that is lost ends the engine.

use crate::checkpoints::random;
use crate::placement::{rule, rules};
use backend::*;
use engine::{EngineOptions, Event, LoadOptions, Outcome, Request, Runner, SubmitError, start};
use kernels::quant::QuantType;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Steps that the device computes before it is lost.
const STEPS: usize = 20;
/// Whether all requests are submitted: the first step does not end before.
static SUBMITTED: AtomicBool = AtomicBool::new(false);

/// The CPU until the device is lost.
struct Fragile {
    inner: Box<dyn Backend>,
    steps: usize,
}

static FRAGILE: Device = Device {
    name: "fragile",
    is_gpu: true,
    list: Vec::new,
    open: |options| Ok(Box::new(Fragile { inner: (CPU.open)(options)?, steps: 0 })),
};

macro_rules! delegate {
    (&self: $(fn $read:ident($($seen:ident: $of:ty),*) $(-> $gives:ty)?;)*
     &mut self: $(fn $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)*) => {
        $(fn $read(&self, $($seen: $of),*) $(-> $gives)? { self.inner.$read($($seen),*) })*
        $(fn $name(&mut self, $($arg: $ty),*) $(-> $ret)? { self.inner.$name($($arg),*) })*
    };
}

impl Executor for Fragile {
    fn device(&self) -> &'static Device {
        &FRAGILE
    }

    fn end(&mut self) -> Result<(), Error> {
        self.steps += 1;
        self.inner.end()?;
        while !SUBMITTED.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        match self.steps > STEPS {
            true => Err(Error::Lost("device fragile: unplugged".to_owned())),
            false => Ok(()),
        }
    }

    delegate! {
        &self:
        fn identity() -> String;
        fn threads() -> usize;
        fn memory() -> Memory;
        &mut self:
        fn begin(batch: &Batch);
    }
}

impl Weights for Fragile {
    /// As on every GPU, weights of all types are copied to the device, also where the CPU under it
    /// has no layout of its own for them.
    fn held(&self, ty: &'static QuantType, rows: usize, cols: usize, _: Mode) -> Held {
        Held {
            layout: "fragile",
            bytes: Some(rows * cols / ty.block_len * ty.block_bytes),
            arithmetic: None,
        }
    }

    delegate! {
        &self:
        fn mode() -> Mode;
        &mut self:
        fn table(spec: MatrixSpec) -> Result<Table, Error>;
        fn matrix(spec: MatrixSpec) -> Result<Matrix, Error>;
        fn vector(values: Vec<f32>) -> Vector;
        fn experts(spec: ExpertsSpec) -> Result<Experts, Error>;
        fn rope(frequencies: Vec<f32>, magnitude: Magnitude, pairs: Pairs, rows: usize) -> Result<Rope, Error>;
    }
}

impl Cache for Fragile {
    delegate! {
        &self:
        &mut self:
        fn cache(spec: &CacheSpec<'_>) -> Result<(), Error>;
        fn copy_blocks(copies: &[BlockCopy]);
        fn copy_states(copies: &[(u32, u32)]);
    }
}

impl Operations for Fragile {
    delegate! {
        &self:
        fn read(x: Buffer, rows: usize) -> &[f32];
        &mut self:
        fn buffer(rows: usize, width: usize) -> Result<Buffer, Error>;
        fn embed(table: Table, tokens: &[u32], out: Buffer);
        fn rms_norm(x: Buffer, norm: RmsNorm, out: Buffer, rows: usize);
        fn linear(x: Buffer, outputs: &[(Matrix, Buffer)], rows: usize);
        fn linear_heads(x: HeadColumns, weights: &[Matrix], out: HeadColumns, rows: usize);
        fn copy_heads(x: HeadColumns, width: usize, out: HeadColumns, rows: usize);
        fn rope_angles(rope: Rope, positions: &[u32], long: LongRows<'_>);
        fn rotate(x: HeadColumns, rope: Rope, rows: usize);
        fn rotate_back(x: HeadColumns, rope: Rope, rows: usize);
        fn store_kv(layer: usize, keys: Buffer, values: Option<Buffer>, batch: &Batch);
        fn attention(layer: usize, q: Buffer, out: Buffer, spec: &AttentionSpec, batch: &Batch);
        fn round(x: HeadColumns, width: usize, rounding: Rounding, rows: usize);
        fn store_rows(layer: usize, which: usize, x: Buffer, batch: &Batch);
        fn compress(layer: usize, spec: &Compression, batch: &Batch);
        fn selection(rows: usize, top: usize) -> Result<Selection, Error>;
        fn select_rows(layer: usize, q: Buffer, weights: Buffer, spec: &IndexSpec, batch: &Batch);
        fn attend_rows(layer: usize, q: Buffer, out: Buffer, spec: &RowAttention, batch: &Batch);
        fn spread_streams(x: Buffer, out: Buffer, rows: usize);
        fn stream_factors(z: Buffer, spec: &HyperSpec, out: Buffer, rows: usize);
        fn read_streams(x: Buffer, factors: Buffer, out: Buffer, rows: usize);
        fn write_streams(x: Buffer, factors: Buffer, y: Buffer, rows: usize);
        fn gate_streams(keys: Buffer, queries: Buffer, values: Buffer, out: Buffer, rows: usize);
        fn short_conv(layer: usize, which: usize, x: Buffer, spec: &ShortConv, batch: &Batch);
        fn recur(layer: usize, spec: &RecurrenceSpec, batch: &Batch);
        fn center(x: Buffer, out: Buffer, rows: usize);
        fn map(op: MapOp, x: Buffer, rows: usize);
        fn mix_experts(x: Buffer, logits: Buffer, experts: Experts, out: Buffer, tokens: &[u32]);
        fn gather(x: Buffer, rows: &[u32], out: Buffer);
        fn fetch(x: Buffer, rows: usize);
        fn update(x: Buffer, rows: usize, change: &mut dyn FnMut(&mut [f32]));
    }
}

/// How a request ends.
fn end(mut generation: engine::Generation) -> Option<Outcome> {
    std::iter::from_fn(|| generation.next_blocking()).find_map(|event| match event {
        Event::Finished(finished) => Some(finished.outcome),
        _ => None,
    })
}

#[test]
fn a_lost_device_ends_every_stream_with_an_error() {
    let (checkpoint, _folder) = random("qwen3");
    let options = LoadOptions { device: (&FRAGILE).into(), threads: 1, ..LoadOptions::default() };
    let runner = Runner::load(&checkpoint, &options).unwrap();
    // One request more than runs at once: it waits when the device is lost.
    let (handle, thread) = start(runner, EngineOptions { running: 2, ..EngineOptions::default() });
    let request = Request { prompt: vec![1, 2, 3], max_tokens: Some(500), ..Request::default() };
    let started = [0; 3].map(|_| handle.submit(request.clone()).unwrap());
    SUBMITTED.store(true, Ordering::Release);
    let ends = started.map(end);
    let failed = |end: &&Option<Outcome>| matches!(end, Some(Outcome::Failed(problem)) if problem == "device fragile: unplugged");
    assert_eq!(ends.iter().filter(failed).count(), 2, "{ends:?}");
    assert_eq!(ends.iter().filter(|end| end.is_none()).count(), 1, "{ends:?}");
    thread.join().unwrap();
    assert!(!handle.is_alive());
    assert!(matches!(handle.submit(request), Err(SubmitError::Stopped)));
}

#[test]
fn rules_for_a_gpu_mean_the_device_in_use() {
    let (checkpoint, _folder) = random("qwen3");
    let load = |place: &str| {
        let placement = Some(Arc::new(rules(&rule("kind: attention", place))));
        let device = (&FRAGILE).into();
        let options = LoadOptions { device, threads: 1, placement, ..LoadOptions::default() };
        Runner::load(&checkpoint, &options).map(drop)
    };
    for place in ["device: gpu", "device: gpu:0", "memory: packed"] {
        load(place).unwrap_or_else(|error| panic!("{place}: {error}"));
    }
    for (place, problem) in [
        ("device: gpu:1", "place.device gpu:1: expected gpu"),
        ("device: cpu", "place.device cpu: expected gpu"),
        ("memory: mapped", "place.memory mapped: expected packed"),
        ("memory: locked", "place.memory locked: expected packed"),
        ("threads: 2", "place.threads: expected none"),
    ] {
        let error = load(place).unwrap_err().to_string();
        assert!(error.contains(problem), "{place}: {error}");
    }
}
