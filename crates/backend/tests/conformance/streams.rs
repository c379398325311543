//! Hyper-connections.

use crate::on_every_device;
use crate::pair::Pair;
use backend::{Buffer, HyperSpec, StreamFactors};

/// Largest difference where values are multiplied and added a few times.
const CLOSE: f32 = 1e-5;

/// Factors of `streams` streams.
fn factors(pair: &mut Pair, streams: usize, kind: StreamFactors) -> HyperSpec {
    let (values, parts) = match kind {
        StreamFactors::All => ((2 + streams) * streams, 3),
        StreamFactors::Apart { .. } => (2 * streams, 2),
        StreamFactors::Head => (streams, 1),
    };
    let (base, scale) = (pair.vector(values), pair.vector(parts));
    let iterations = pair.number(1, 20);
    HyperSpec { streams, iterations, eps: 1e-6, base, scale, kind }
}

/// Copies row `from` of a buffer to its first row.
fn first(pair: &mut Pair, x: Buffer, from: usize, rows: usize, width: usize) {
    pair.both(|backend| {
        backend.update(x, rows, &mut |values| {
            values.copy_within(from * width..(from + 1) * width, 0);
        });
    });
}

#[test]
fn hyper_connections_agree() {
    on_every_device(8, |pair| {
        let (rows, width) = (pair.number(1, 40), pair.number(1, 200));
        let streams = if pair.number(0, 1) == 0 { 4 } else { pair.number(1, 16) };
        let values = (2 + streams) * streams;
        let (x, wide) = (pair.buffer(rows, width), pair.buffer(rows, streams * width));
        pair.both(|backend| backend.spread_streams(x, wide, rows));
        pair.agree(wide, rows, 0.0, "spread_streams");
        pair.fill(wide, rows, streams * width);
        let (z, mixing) = (pair.buffer(rows, values), pair.buffer(rows, values));
        let spec = factors(pair, streams, StreamFactors::All);
        pair.both(|backend| backend.stream_factors(z, &spec, mixing, rows));
        pair.agree(mixing, rows, CLOSE, "stream_factors");
        let (z, apart) = (pair.buffer(rows, 2 * streams), pair.buffer(rows, values));
        let spec = factors(pair, streams, StreamFactors::Apart { magnitude: 1.5 });
        pair.both(|backend| backend.stream_factors(z, &spec, apart, rows));
        pair.agree(apart, rows, CLOSE, "stream_factors of streams that are not mixed");
        pair.both(|backend| backend.read_streams(wide, mixing, x, rows));
        pair.agree(x, rows, CLOSE, "read_streams");
        pair.both(|backend| backend.write_streams(wide, mixing, x, rows));
        pair.agree(wide, rows, CLOSE, "write_streams");
        let (z, read) = (pair.buffer(rows, streams), pair.buffer(rows, streams));
        let spec = factors(pair, streams, StreamFactors::Head);
        pair.both(|backend| backend.stream_factors(z, &spec, read, rows));
        pair.agree(read, rows, CLOSE, "stream_factors of the head");
    });
}

#[test]
fn streams_of_a_row_have_the_same_bits_alone() {
    on_every_device(4, |pair| {
        let (rows, width, streams) = (pair.number(2, 90), pair.number(1, 200), 4);
        let values = (2 + streams) * streams;
        let (x, wide) = (pair.buffer(rows, width), pair.buffer(rows, streams * width));
        let (z, mixing) = (pair.buffer(rows, values), pair.buffer(rows, values));
        let spec = factors(pair, streams, StreamFactors::All);
        let chosen = pair.number(1, rows - 1);
        let run = |pair: &mut Pair, rows: usize| {
            pair.both(|backend| {
                backend.stream_factors(z, &spec, mixing, rows);
                backend.write_streams(wide, mixing, x, rows);
                backend.read_streams(wide, mixing, x, rows);
            });
        };
        let [_, before] = pair.read(wide, rows);
        let [_, inputs] = pair.read(x, rows);
        run(pair, rows);
        let row = |values: &[f32], width: usize| values[chosen * width..][..width].to_vec();
        let all = [(x, width), (wide, streams * width), (mixing, values)];
        let many = all.map(|(buffer, width)| row(&pair.read(buffer, rows)[1], width));
        pair.both(|backend| {
            backend.update(wide, rows, &mut |to| to.copy_from_slice(&before));
            backend.update(x, rows, &mut |to| to.copy_from_slice(&inputs));
        });
        first(pair, wide, chosen, rows, streams * width);
        first(pair, x, chosen, rows, width);
        first(pair, z, chosen, rows, values);
        run(pair, 1);
        for ((buffer, _), many) in all.into_iter().zip(many) {
            assert_eq!(pair.read(buffer, 1)[1], many, "the same bits alone");
        }
    });
}

#[test]
fn gated_streams_agree_and_have_the_same_bits_alone() {
    on_every_device(6, |pair| {
        let (rows, width, streams) = (pair.number(2, 40), pair.number(1, 200), pair.number(1, 6));
        let all = streams * width;
        let [keys, queries, out] = [(); 3].map(|()| pair.buffer(rows, all));
        let values = pair.buffer(rows, width);
        for (buffer, width) in [(keys, all), (queries, all), (values, width)] {
            pair.fill(buffer, rows, width);
        }
        pair.both(|backend| backend.gate_streams(keys, queries, values, out, rows));
        pair.agree(out, rows, CLOSE, "gate_streams");
        let together = pair.read(out, rows);
        let last = rows - 1;
        for (buffer, width) in [(keys, all), (queries, all), (values, width)] {
            first(pair, buffer, last, rows, width);
        }
        pair.both(|backend| backend.gate_streams(keys, queries, values, out, 1));
        for (together, alone) in together.iter().zip(pair.read(out, 1)) {
            assert_eq!(together[last * all..], alone);
        }
    });
}
