//! What holds of every kind of ranks.

use base::Rng;
use dist::{Comm, Error, Traffic};

/// Values whose sum depends on the order of adding.
fn values(rank: usize, seed: u64, length: usize) -> Vec<f32> {
    let mut rng = Rng::new(seed * 100 + rank as u64);
    (0..length).map(|_| rng.normal() * 10f32.powi(rng.below(8) as i32)).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Values of a piece.
const PIECE: usize = 1 << 14;
const LENGTHS: [usize; 8] =
    [0, 1, 1000, PIECE, PIECE + 1, 2 * PIECE + 5, 3 * PIECE, 9 * PIECE + 17];

/// Checks all laws on one rank of a group.
pub fn hold(comm: &dyn Comm) {
    sums_are_taken_in_ascending_order(comm);
    values_are_gathered(comm);
    all_get_the_values_of_the_root(comm);
    messages_arrive_in_order(comm);
    bytes_arrive(comm);
    lengths_that_differ_are_errors(comm);
    groups_split(comm);
    rounds_of_all_kinds_do_not_mix(comm);
}

fn sums_are_taken_in_ascending_order(comm: &dyn Comm) {
    for length in LENGTHS {
        let add = |mut sum: Vec<f32>, rank| {
            sum.iter_mut().zip(values(rank, 1, length)).for_each(|(sum, value)| *sum += value);
            sum
        };
        let expected = (1..comm.ranks()).fold(values(0, 1, length), add);
        let mut sum = values(comm.rank(), 1, length);
        let before = comm.traffic();
        comm.all_reduce_sum(&mut sum).unwrap();
        assert_eq!(bits(&sum), bits(&expected), "{length} values");
        let Traffic { bytes, .. } = comm.traffic();
        if length <= PIECE {
            assert_eq!(bytes - before.bytes, (4 * length * (comm.ranks() - 1)) as u64);
        }
    }
}

fn values_are_gathered(comm: &dyn Comm) {
    for (length, root) in LENGTHS.into_iter().zip((0..comm.ranks()).cycle()) {
        // Some have more than others.
        let part = |rank| values(rank, 2, length + rank % 3);
        let parts: Vec<Vec<f32>> = (0..comm.ranks()).map(part).collect();
        let expected = bits(&parts.concat());
        let mut all = vec![f32::NAN; expected.len()];
        comm.all_gather(&parts[comm.rank()], &mut all).unwrap();
        assert_eq!(bits(&all), expected, "{length} values");
        let mut all = vec![7.0; expected.len()];
        let lengths: Vec<usize> = parts.iter().map(Vec::len).collect();
        comm.gather(root, &parts[comm.rank()], (&lengths, &mut all)).unwrap();
        match comm.rank() == root {
            true => assert_eq!(bits(&all), expected, "{length} values"),
            false => assert!(all.iter().all(|value| *value == 7.0)),
        }
    }
}

fn all_get_the_values_of_the_root(comm: &dyn Comm) {
    for length in LENGTHS {
        for root in 0..comm.ranks() {
            let mut found = values(comm.rank(), 3, length);
            comm.broadcast(root, &mut found).unwrap();
            assert_eq!(bits(&found), bits(&values(root, 3, length)));
        }
    }
}

/// Around a ring, in which all send first: a few pieces wait for their receiver.
fn messages_arrive_in_order(comm: &dyn Comm) {
    let (rank, ranks) = (comm.rank(), comm.ranks());
    if ranks == 1 {
        return;
    }
    let (next, last) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    for (seed, length) in (0..).zip(LENGTHS.into_iter().chain([64 * PIECE, 65 * PIECE + 1])) {
        let mut found = vec![0.0; length];
        let is_short = length <= 64 * PIECE;
        if is_short || rank == 0 {
            comm.send(next, &values(rank, seed, length)).unwrap();
        }
        comm.receive(last, &mut found).unwrap();
        assert_eq!(bits(&found), bits(&values(last, seed, length)));
        if !is_short && rank != 0 {
            comm.send(next, &values(rank, seed, length)).unwrap();
        }
    }
}

fn bytes_arrive(comm: &dyn Comm) {
    let bytes = |length: usize| -> Vec<u8> { (0..length).map(|at| (at * 7) as u8).collect() };
    let mut found = vec![1; 9];
    for length in [0, 1, 5, 1019, 1020, 1021, 17_405, 100_003] {
        for (from, to) in (1..comm.ranks()).flat_map(|rank| [(0, rank), (rank, 0)]) {
            if comm.rank() == from {
                comm.send_bytes(to, &bytes(length)).unwrap();
            } else if comm.rank() == to {
                comm.receive_bytes(from, &mut found).unwrap();
                assert_eq!(found, bytes(length));
            }
        }
    }
}

/// After an error of a message, the next one arrives.
fn lengths_that_differ_are_errors(comm: &dyn Comm) {
    if comm.rank() == 0 && comm.ranks() > 1 {
        for length in [3, 2 * PIECE] {
            comm.send(1, &vec![1.0; length]).unwrap();
        }
        comm.send(1, &[5.0]).unwrap();
    } else if comm.rank() == 1 {
        for found in [3, 2 * PIECE] {
            let error = comm.receive(0, &mut [0.0; 2]).unwrap_err();
            assert_eq!(error, Error::Length { call: "receive", rank: 1, expected: 2, found });
        }
        let mut last = [0.0];
        comm.receive(0, &mut last).unwrap();
        assert_eq!(last, [5.0]);
    }
    let ranks = comm.ranks();
    for wrong in [comm.send(ranks, &[]), comm.receive(comm.rank(), &mut [])] {
        assert!(matches!(wrong, Err(Error::NoSuchRank { .. })), "{wrong:?}");
    }
    comm.barrier().unwrap();
}

/// Even and odd ranks form groups of their own, in descending order, and those split again.
fn groups_split(comm: &dyn Comm) {
    let (rank, ranks) = (comm.rank(), comm.ranks());
    let group = comm.split(rank % 2, ranks - rank).unwrap();
    let members: Vec<usize> = (0..ranks).rev().filter(|other| other % 2 == rank % 2).collect();
    assert_eq!(group.ranks(), members.len());
    assert_eq!(members[group.rank()], rank);
    let mut all = vec![0.0; members.len()];
    group.all_gather(&[rank as f32], &mut all).unwrap();
    assert_eq!(all, members.iter().map(|rank| *rank as f32).collect::<Vec<_>>());
    let alone = group.split(group.rank(), 0).unwrap();
    let mut own = [rank as f32];
    alone.all_reduce_sum(&mut own).unwrap();
    assert_eq!((alone.ranks(), own), (1, [rank as f32]));
    // Both groups have messages under way at once.
    let mut sums = [[1.0], [1.0]];
    comm.all_reduce_sum(&mut sums[0]).unwrap();
    group.all_reduce_sum(&mut sums[1]).unwrap();
    assert_eq!(sums, [[ranks as f32], [members.len() as f32]]);
}

fn rounds_of_all_kinds_do_not_mix(comm: &dyn Comm) {
    let (rank, ranks) = (comm.rank(), comm.ranks());
    let total = (0..ranks).sum::<usize>() as f32;
    for round in 0..200 {
        let mut sum = [rank as f32, round as f32];
        comm.all_reduce_sum(&mut sum).unwrap();
        assert_eq!(sum, [total, (ranks * round) as f32]);
        let mut all = vec![0.0; ranks];
        comm.all_gather(&[(rank * round) as f32], &mut all).unwrap();
        assert_eq!(all, (0..ranks).map(|rank| (rank * round) as f32).collect::<Vec<_>>());
        let mut told = [rank as f32];
        comm.broadcast(round % ranks, &mut told).unwrap();
        assert_eq!(told, [(round % ranks) as f32]);
        if ranks > 1 {
            comm.send((rank + 1) % ranks, &told).unwrap();
            comm.receive((rank + ranks - 1) % ranks, &mut sum[..1]).unwrap();
            assert_eq!(sum[0], told[0]);
        }
        comm.barrier().unwrap();
    }
}
