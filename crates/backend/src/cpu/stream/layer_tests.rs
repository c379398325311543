//! Simulations of layers that are read in order, and of experts that pass.

use super::tests::{Scripted, byte, check_bytes, parts, request, scripted, slot_size, started};
use super::*;
use base::Rng;
use std::ops::Range;

/// Matrices of the layers: those of layer `i` are `SIZES[i]` bytes long.
const SIZES: [&[usize]; 5] = [&[9000, 500], &[700, 8000, 60], &[12_000], &[4096, 4096], &[1, 2, 3]];

/// A stream of these layers without experts.
fn layers(file: &Arc<Scripted>) -> WeightStream {
    let mut stream = WeightStream::default();
    let mut start = 0;
    for sizes in SIZES {
        let parts = sizes.iter().map(|&size| {
            let range = start..start + size as u64;
            start = range.end;
            EntryPart { file: file.clone(), range, crc32c: None, packing: None }
        });
        stream.add_layer(parts.collect::<Vec<_>>().into_iter());
    }
    stream.start(1 << 20, 2, 0).unwrap();
    stream
}

/// Numbers of the matrices of each layer, and the bytes of a matrix.
fn numbers() -> Vec<Range<usize>> {
    let ends = SIZES.iter().scan(0, |end, sizes| {
        *end += sizes.len();
        Some(*end - sizes.len()..*end)
    });
    ends.collect()
}

fn bytes(number: usize) -> Vec<u8> {
    let sizes: Vec<usize> = SIZES.concat();
    let start: usize = sizes[..number].iter().sum();
    (start..start + sizes[number]).map(|at| byte(at as u64)).collect()
}

#[test]
fn matrices_of_layers_are_there_when_products_need_them() {
    for seed in 0..6 {
        let mut stream = layers(&scripted(seed));
        let mut rng = Rng::new(seed);
        let held = stream.stats().unwrap().slot_bytes;
        for _ in 0..12 {
            stream.begin_step(true, 1);
            // A step may end anywhere, where it fails.
            for all in numbers().into_iter().take(1 + rng.below(9) as usize) {
                for number in all.clone() {
                    // Products of resident matrices come between.
                    stream.need(std::iter::empty());
                    stream.need(std::iter::once(number));
                    assert_eq!(stream.bytes(number, 0), bytes(number), "matrix {number}");
                }
                stream.need(std::iter::empty());
            }
        }
        let slots = stream.slots.iter().map(|slot| slot.memory.len()).sum::<usize>();
        assert!(slots <= held, "{slots} of {held}");
        assert_eq!(stream.stats().unwrap().hits, 0, "no experts");
        assert!(stream.take_failure().is_none());
    }
}

#[test]
fn a_layer_is_read_while_the_one_before_is_used() {
    let mut stream = layers(&scripted(9));
    let all = numbers();
    for step in 0..3 {
        for (layer, own) in all.iter().enumerate() {
            own.clone().for_each(|number| stream.need(std::iter::once(number)));
            let next = all[(layer + 1) % all.len()].start;
            let is_coming = matches!(stream.entries[next].place, Place::In(_) | Place::Reading(_));
            assert!(is_coming, "step {step}, layer {layer}");
        }
    }
}

#[test]
fn a_layer_that_cannot_be_read_fails_all_rows_until_it_can() {
    let file = scripted(4);
    let mut stream = layers(&file);
    let broken = numbers()[2].start;
    let start: usize = SIZES[..2].concat().iter().sum();
    file.broken.lock().unwrap().insert(start as u64);
    let step = |stream: &mut WeightStream| {
        stream.begin_step(true, 3);
        for number in numbers().into_iter().flatten() {
            stream.need(std::iter::once(number));
            assert_eq!(stream.bytes(number, 0).len(), bytes(number).len());
        }
        stream.take_failure()
    };
    for _ in 0..2 {
        let error = step(&mut stream).unwrap();
        assert!(matches!(&error, Error::Weights { rows, .. } if rows[..] == [0, 1, 2]), "{error}");
    }
    file.broken.lock().unwrap().clear();
    assert!(step(&mut stream).is_none());
    stream.need(std::iter::once(broken));
    assert_eq!(stream.bytes(broken, 0), bytes(broken));
}

/// Computes experts in their order, as a layer does.
fn compute(stream: &mut WeightStream, chosen: Range<usize>) {
    stream.begin_layer(chosen.clone());
    let (mut asked, mut done) = (chosen.start, chosen.start);
    while done < chosen.end {
        while asked < chosen.end && stream.request(asked, asked == done) {
            asked += 1;
        }
        assert!(asked > done);
        match stream.is_in(done) {
            true => {
                check_bytes(stream, done);
                stream.release(done);
                done += 1;
            }
            false => stream.wait(),
        }
    }
}

#[test]
fn a_prompt_leaves_what_decoding_uses() {
    let mut stream = started(&scripted(7), 64, 40);
    for step in 0..3 {
        stream.begin_step(true, 1);
        for expert in 0..30 {
            stream.heat(expert, 1 + step);
            request(&mut stream, &[expert]);
            while !stream.is_in(expert) {
                stream.wait();
            }
            stream.release(expert);
        }
    }
    // Ten slots are left for the others, which are not counted.
    let hot = |stream: &WeightStream| (0..30).filter(|expert| stream.is_in(*expert)).count();
    assert_eq!(hot(&stream), 30);
    for _ in 0..3 {
        stream.begin_step(false, 500);
        compute(&mut stream, 20..64);
    }
    assert_eq!(hot(&stream), 30);
    // Where all slots are hot, they take no more than the window.
    for _ in 0..3 {
        stream.begin_step(true, 1);
        (0..40).for_each(|expert| stream.heat(expert, 1));
        compute(&mut stream, 0..40);
    }
    stream.begin_step(false, 500);
    compute(&mut stream, 0..64);
    let window = stream.classes[0].window;
    let hot = (0..40).filter(|expert| stream.is_in(*expert)).count();
    assert!(window < 10 && hot >= 40 - window, "{hot}, a window of {window}");
}

#[test]
fn more_experts_than_slots_are_computed_in_order() {
    for slots in [1, 2, 5, 31] {
        let mut stream = started(&scripted(slots as u64), 32, slots);
        for _ in 0..4 {
            stream.begin_step(true, 64);
            (0..32).for_each(|expert| stream.heat(expert, expert % 3));
            compute(&mut stream, 0..32);
            compute(&mut stream, 5..9);
        }
        assert!(stream.slots.iter().all(|slot| !slot.pinned), "{slots} slots");
    }
}

#[test]
fn what_is_read_ahead_is_used_or_given_up() {
    let file = scripted(3);
    let mut stream = WeightStream::default();
    for layer in 0..3 {
        let experts = (0..8).map(|expert| parts(&file, layer * 8 + expert));
        assert_eq!(stream.add_experts(experts), layer * 8);
    }
    stream.start(12 * slot_size(&stream), 2, 1).unwrap();
    stream.begin_step(false, 100);
    stream.read_ahead(0);
    compute(&mut stream, 8..14);
    let stats = stream.stats().unwrap();
    assert_eq!((stats.ahead, stats.ahead_used), (8, 6));
    stream.read_ahead(20);
    assert_eq!(stream.stats().unwrap().ahead, 8, "there is no layer behind the last");
    // Given up at once, and read again when it is needed.
    stream.read_ahead(0);
    compute(&mut stream, 16..17);
    assert!(stream.slots.iter().all(|slot| !slot.kept));
    for layer in [0..8, 8..16, 16..24] {
        compute(&mut stream, layer);
    }
}

#[test]
fn guesses_are_given_up_when_their_layer_is_reached() {
    let file = scripted(8);
    let mut stream = WeightStream::default();
    for layer in 0..3 {
        stream.add_experts((0..8).map(|expert| parts(&file, layer * 8 + expert)));
    }
    stream.start(20 * slot_size(&stream), 2, 1).unwrap();
    stream.begin_step(true, 1);
    let kept = |stream: &WeightStream| -> Vec<usize> {
        let slots = stream.slots.iter().filter(|slot| slot.kept);
        let mut kept: Vec<usize> = slots.filter_map(|slot| slot.expert).collect();
        kept.sort_unstable();
        kept
    };
    [9, 10, 11].into_iter().for_each(|expert| stream.foresee(expert));
    compute(&mut stream, 0..1);
    assert_eq!(kept(&stream), [9, 10, 11], "their layer is the next");
    stream.foresee(17);
    compute(&mut stream, 9..10);
    assert_eq!(kept(&stream), [17], "one was used, two were not");
    let stats = stream.stats().unwrap();
    assert_eq!((stats.ahead, stats.ahead_used), (4, 1));
}
