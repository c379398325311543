//! Simulations of the stream over files that answer late, in any order, or not at all.

use super::*;
use base::Rng;
use kernels::Isa;
use kernels::layout;
use kernels::quant::Q8_0;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Bytes of a matrix.
const PART: usize = 5000;
/// Matrices of an expert.
const PARTS: usize = 3;
/// An expert with a wrong checksum.
const WRONG: usize = 90;

/// A file whose byte at `i` is known, whose reads take some time, and of which some fail.
pub(super) struct Scripted {
    random: Mutex<Rng>,
    /// Starts of ranges that cannot be read.
    pub broken: Mutex<HashSet<u64>>,
    changed: AtomicBool,
    reads: AtomicUsize,
}

pub(super) fn byte(at: u64) -> u8 {
    (at * 7 + at / 251) as u8
}

impl PartFile for Scripted {
    fn covering(&self, range: &Range<u64>) -> Range<u64> {
        range.start / 512 * 512..range.end.next_multiple_of(512)
    }

    fn read(&self, range: &Range<u64>, buffer: &mut [u8]) -> io::Result<Range<usize>> {
        let micros = self.random.lock().unwrap().below(300);
        std::thread::sleep(Duration::from_micros(micros));
        self.reads.fetch_add(1, Ordering::Relaxed);
        if self.broken.lock().unwrap().contains(&range.start) {
            return Err(io::Error::other("a broken disk"));
        }
        let all = self.covering(range);
        for (at, to) in (all.start..all.end).zip(buffer.iter_mut()) {
            *to = byte(at);
        }
        let start = (range.start - all.start) as usize;
        Ok(start..start + (range.end - range.start) as usize)
    }

    fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Relaxed)
    }

    fn path(&self) -> &Path {
        Path::new("scripted.gguf")
    }
}

pub(super) fn scripted(seed: u64) -> Arc<Scripted> {
    let (random, broken) = (Mutex::new(Rng::new(seed)), Mutex::default());
    let (changed, reads) = (AtomicBool::new(false), AtomicUsize::new(0));
    Arc::new(Scripted { random, broken, changed, reads })
}

/// Where matrix `part` of an expert is in the file.
pub(super) fn place(expert: usize, part: usize) -> Range<u64> {
    let start = ((expert * PARTS + part) * PART) as u64;
    start..start + PART as u64
}

/// The checksums of some matrices.
fn sums(expert: usize, part: usize) -> Option<u32> {
    let bytes: Vec<u8> = place(expert, part).map(byte).collect();
    let sum = crc32c::crc32c(&bytes);
    match (expert, part) {
        (WRONG, 1) => Some(!sum),
        (_, 2) => None,
        _ => Some(sum),
    }
}

fn stream(file: &Arc<Scripted>, experts: usize) -> WeightStream {
    let mut stream = WeightStream::default();
    stream.add_experts((0..experts).map(|expert| parts(file, expert)));
    stream
}

pub(super) fn parts(file: &Arc<Scripted>, expert: usize) -> Vec<EntryPart> {
    let part = |part| {
        let (range, crc32c) = (place(expert, part), sums(expert, part));
        EntryPart { file: file.clone(), range, crc32c, packing: None }
    };
    (0..PARTS).map(part).collect()
}

pub(super) fn slot_size(stream: &WeightStream) -> usize {
    stream.entries.iter().map(|expert| expert.entry.space()).max().unwrap()
}

/// A stream with memory for `slots` of its experts.
pub(super) fn started(file: &Arc<Scripted>, experts: usize, slots: usize) -> WeightStream {
    let mut stream = stream(file, experts);
    stream.start(slots * slot_size(&stream), 3, 1).unwrap();
    assert_eq!(stream.stats().unwrap().slots, slots);
    stream
}

/// Requests experts that fit together.
pub(super) fn request(stream: &mut WeightStream, chosen: &[usize]) {
    stream.begin_layer(chosen.iter().copied());
    let mut chosen = chosen.to_vec();
    chosen.sort_unstable();
    chosen.into_iter().for_each(|expert| assert!(stream.request(expert, true)));
}

pub(super) fn check_bytes(stream: &WeightStream, expert: usize) {
    for part in 0..PARTS {
        let expected: Vec<u8> = place(expert, part).map(byte).collect();
        assert_eq!(stream.bytes(expert, part), expected, "expert {expert}, part {part}");
    }
}

#[test]
fn a_full_slot_holds_the_bytes_of_its_expert() {
    for seed in 0..12 {
        let mut stream = started(&scripted(seed), 24, 9);
        let mut rng = Rng::new(seed);
        for _ in 0..40 {
            stream.begin_step(true, 1);
            let capacity = 9;
            let first = rng.below(24) as usize;
            let chosen = (0..capacity).map(|i| (first + i * 5) % 24).collect::<HashSet<_>>();
            chosen.iter().for_each(|expert| stream.heat(*expert, 1));
            request(&mut stream, &chosen.iter().copied().collect::<Vec<_>>());
            let mut left = chosen.clone();
            while !left.is_empty() {
                // What was requested stays until it is released.
                for expert in chosen.difference(&left) {
                    check_bytes(&stream, *expert);
                }
                let there = left.iter().copied().find(|expert| stream.is_in(*expert));
                match there {
                    Some(expert) => drop(left.remove(&expert)),
                    None => stream.wait(),
                }
            }
            chosen.iter().for_each(|expert| stream.release(*expert));
        }
        let stats = stream.stats().unwrap();
        assert!(stats.hits > 0 && stats.misses > stats.evictions, "{stats:?}");
        assert_eq!(stats.slot_bytes, stream.slots.iter().map(|it| it.memory.len()).sum());
    }
}

#[test]
fn the_coldest_experts_lose_their_slots() {
    let mut stream = started(&scripted(1), 8, 4);
    let get = |stream: &mut WeightStream, expert: usize| {
        stream.begin_step(true, 1);
        stream.heat(expert, 1);
        request(stream, &[expert]);
        while !stream.is_in(expert) {
            stream.wait();
        }
        stream.release(expert);
    };
    // Expert 0 is used often, the others once.
    for expert in [0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7] {
        get(&mut stream, expert);
    }
    assert!(stream.is_in(0) && stream.is_in(7));
    assert!(!stream.is_in(1));
    let held = (0..8).filter(|expert| stream.is_in(*expert)).count();
    assert_eq!(held, 4);
}

#[test]
fn an_expert_that_cannot_be_read_is_an_error_until_it_can() {
    let file = scripted(2);
    let mut stream = started(&file, 6, 4);
    file.broken.lock().unwrap().insert(place(3, 0).start);
    let get = |stream: &mut WeightStream| {
        request(stream, &[3]);
        while !stream.is_in(3) && !stream.has_failed(3) {
            stream.wait();
        }
        stream.release(3);
    };
    get(&mut stream);
    assert!(stream.has_failed(3));
    stream.note_failed([7, 9].into_iter());
    let error = stream.take_failure().unwrap();
    let text = error.to_string();
    assert_eq!(text, "cannot read weights: scripted.gguf: a broken disk");
    assert!(matches!(error, Error::Weights { rows, .. } if rows == [7, 9]));
    assert!(stream.take_failure().is_none());
    file.broken.lock().unwrap().clear();
    get(&mut stream);
    check_bytes(&stream, 3);
    assert!(stream.slots.iter().all(|slot| !slot.memory.is_empty()), "memory is not lost");
}

#[test]
fn bytes_that_differ_from_their_checksum_are_not_used() {
    let mut stream = started(&scripted(5), WRONG + 1, 8);
    request(&mut stream, &[WRONG, 1]);
    while !(stream.is_in(1) && stream.has_failed(WRONG)) {
        stream.wait();
    }
    let error = stream.take_failure().unwrap().to_string();
    assert!(error.contains("scripted.gguf") && error.contains("checksum"), "{error}");
}

#[test]
fn a_file_that_changed_is_lost() {
    let file = scripted(3);
    file.changed.store(true, Ordering::Relaxed);
    file.broken.lock().unwrap().insert(0);
    let mut stream = started(&file, 2, 2);
    request(&mut stream, &[0]);
    stream.wait();
    let error = stream.take_failure().unwrap();
    assert!(matches!(&error, Error::Lost(text) if text.contains("scripted.gguf")), "{error}");
}

#[test]
fn files_are_looked_at_once_a_minute() {
    let file = scripted(6);
    let mut stream = started(&file, 2, 2);
    stream.files.insert(file.path().to_owned(), file.clone());
    stream.begin_step(false, 1);
    file.changed.store(true, Ordering::Relaxed);
    stream.begin_step(true, 1);
    assert!(stream.take_failure().is_none());
    stream.looked = Instant::now().checked_sub(LOOK_EVERY);
    stream.begin_step(true, 1);
    let error = stream.take_failure().unwrap();
    assert!(matches!(&error, Error::Lost(text) if text.contains("scripted.gguf")), "{error}");
}

/// The number of reads of an expert with so many bytes between its matrices.
fn check_reads(gap: u64, packing: Option<Packing>, reads: usize) {
    let file = scripted(7);
    let len = packing.map_or(PART, |packing| 9 * packing.rows) as u64;
    let range = |part: u64| {
        let start = 4096 + part * (len + gap);
        start..start + len
    };
    let parts = (0..3).map(|part| {
        let file: Arc<dyn PartFile> = file.clone();
        EntryPart { file, range: range(part), crc32c: None, packing }
    });
    let mut stream = WeightStream::default();
    stream.add_experts(std::iter::once(parts.collect()));
    stream.start(usize::MAX / 2, 1, 1).unwrap();
    request(&mut stream, &[0]);
    stream.wait();
    assert_eq!(file.reads.load(Ordering::Relaxed), reads, "{gap} bytes between");
    for part in 0..3 {
        let expected: Vec<u8> = range(part).map(byte).collect();
        assert!(packing.is_some() || stream.bytes(0, part as usize) == expected, "{gap} {part}");
    }
}

#[test]
fn one_read_brings_matrices_that_follow_one_another() {
    for (gap, reads) in [(0, 1), (8, 1), (4095, 1), (4096, 3), (1 << 20, 3)] {
        check_reads(gap, None, reads);
    }
    check_reads(0, Some(packing()), 3);
}

/// Rows of 34 bytes that are packed.
fn packing() -> Packing {
    let isa = Isa::available()[0];
    let layout = layout::packed(&Q8_0, 32, isa).unwrap();
    let group = layout.bytes(&Q8_0, layout::GROUP, 32).unwrap();
    Packing { isa, layout, ty: &Q8_0, cols: 32, rows: 34 * layout::GROUP, group }
}

#[test]
fn slots_and_buffers_take_no_more_than_they_are_given() {
    let file = scripted(8);
    for packed in [None, Some(packing())] {
        for threads in [1, 3, 8] {
            let mut checked = 0;
            for bytes in (0..1 << 20).step_by(7919) {
                let mut stream = stream(&file, 20);
                for number in 0..stream.entries.len() {
                    let mut parts = Vec::new();
                    for part in 0..PARTS {
                        let (file, range): (Arc<dyn PartFile>, _) =
                            (file.clone(), place(number, part));
                        parts.push(EntryPart { file, range, crc32c: None, packing: packed });
                    }
                    stream.entries[number].entry = Arc::new(Entry::new(parts));
                }
                if stream.start(bytes, threads, 2).is_err() {
                    continue;
                }
                let held = stream.slots.iter().map(|slot| slot.memory.len()).sum::<usize>();
                let classes = stream.slot_classes();
                let planned: usize = classes.iter().map(|it| it.bytes * it.slots).sum();
                assert_eq!((held, held), (planned, stream.slot_bytes()));
                assert!(held + stream.scratch_bytes() <= bytes, "{held} of {bytes}");
                checked += 1;
            }
            assert!(checked > 50);
        }
    }
}

#[test]
fn slots_are_locked_until_the_system_refuses() {
    let mut stream = started(&scripted(9), 6, 4);
    stream.locks = true;
    for expert in 0..6 {
        request(&mut stream, &[expert]);
        while !stream.is_in(expert) {
            stream.wait();
        }
        stream.release(expert);
    }
    let stats = stream.stats().unwrap();
    let locked = stream.slots.iter().filter(|slot| slot.locked).count();
    assert_eq!(stats.locked, locked * slot_size(&stream));
    assert_eq!(locked < 4, stats.lock_refused, "{stats:?}");
}

#[test]
fn memory_for_the_experts_of_a_token_is_needed() {
    let file = scripted(4);
    let mut small = stream(&file, 16);
    let error = small.start(4 * slot_size(&small), 1, 8).unwrap_err();
    let Error::WeightsMemory { needed, found } = error else { panic!("{error}") };
    assert!(found < needed && found == 4 * slot_size(&small));
    small.start(needed, 1, 8).unwrap();
    // More than all experts take is not used.
    let mut large = stream(&file, 16);
    large.start(usize::MAX / 2, 1, 8).unwrap();
    let stats = large.stats().unwrap();
    assert_eq!((stats.slots, stats.slot_bytes), (16, stats.expert_bytes));
}
