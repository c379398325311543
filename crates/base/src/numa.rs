//! NUMA nodes: which there are, and which of them owns which part of shared work.
//!
//! Invariant: owners depend on numbers of threads and of pieces alone. A range of the outputs of a
//! matrix has the same owner whenever it is written or read, up to one piece at each border.

use std::io;
use std::ops::Range;
use std::path::Path;

/// Where Linux describes nodes.
pub const NODES: &str = "/sys/devices/system/node";
/// Most nodes that share work.
pub const MAX_NODES: usize = 16;

/// Nodes of this machine; one where the system does not say.
pub fn nodes() -> usize {
    let online = std::fs::read_to_string(Path::new(NODES).join("online"));
    online.ok().and_then(|list| Some(numbers(list.trim())?.len())).unwrap_or(1)
}

/// The CPUs of each node of this machine that has some, where the system says.
pub fn cpus() -> Option<Vec<Vec<usize>>> {
    let mut nodes = cpus_of_nodes(Path::new(NODES)).ok()?;
    nodes.retain(|cpus| !cpus.is_empty());
    Some(nodes)
}

/// The CPUs of each node that the folder `root` describes as [`NODES`] does.
///
/// # Errors
/// If a file is missing or is no list of numbers; the message names it.
pub fn cpus_of_nodes(root: &Path) -> io::Result<Vec<Vec<usize>>> {
    let read = |name: &str| {
        let path = root.join(name);
        let wrong = |problem: String| {
            let path = path.display();
            io::Error::new(io::ErrorKind::InvalidData, format!("{path}: {problem}"))
        };
        let text = std::fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
        let list = text.trim();
        let expected = || wrong(format!("expected numbers such as 0-3,8, found {list:?}"));
        if list.is_empty() { Ok(Vec::new()) } else { numbers(list).ok_or_else(expected) }
    };
    let nodes = read("online")?;
    nodes.into_iter().map(|node| read(&format!("node{node}/cpulist"))).collect()
}

/// The numbers of a list such as `0-3,8`.
fn numbers(list: &str) -> Option<Vec<usize>> {
    /// Largest number of a CPU or node.
    const MAX_NUMBER: usize = 1 << 16;
    let mut all = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= MAX_NUMBER || all.last().is_some_and(|before| *before >= first) {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

/// Which node owns which pieces: consecutive ones, in proportion to its threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owners {
    /// Threads of the nodes before each node, and of all of them.
    before: Vec<usize>,
}

impl Owners {
    /// The owners where `threads` threads are on nodes with so many CPUs each, in proportion.
    ///
    /// # Panics
    /// Without threads or CPUs.
    pub fn new(threads: usize, cpus: impl IntoIterator<Item = usize>) -> Self {
        let mut all = vec![0];
        all.extend(cpus.into_iter().scan(0, |sum, cpus| {
            *sum += cpus;
            Some(*sum)
        }));
        let total = all[all.len() - 1];
        assert!(total > 0 && threads > 0, "threads and CPUs");
        Self { before: all.into_iter().map(|cpus| part(threads, cpus, total)).collect() }
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.before.len() - 1
    }

    /// The threads of a node, by number.
    pub fn threads(&self, node: usize) -> Range<usize> {
        self.before[node]..self.before[node + 1]
    }

    /// The node of a thread.
    pub fn node_of(&self, thread: usize) -> usize {
        let node = self.before[1..].partition_point(|end| *end <= thread);
        node.min(self.nodes() - 1)
    }

    /// The pieces of `count` that `node` owns.
    pub fn pieces(&self, node: usize, count: usize) -> Range<usize> {
        let total = self.before[self.nodes()];
        let Range { start, end } = self.threads(node);
        part(count, start, total)..part(count, end, total)
    }
}

/// `count * of / total`, rounded down.
fn part(count: usize, of: usize, total: usize) -> usize {
    (count as u128 * of as u128 / total as u128) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn lists_of_ranges_are_read() {
        for (list, expected) in [
            ("0", Some(&[0][..])),
            ("0-1", Some(&[0, 1])),
            ("0-3,8", Some(&[0, 1, 2, 3, 8])),
            ("", None),
            ("3-0", None),
            ("2,1", None),
            ("0-99999999999", None),
        ] {
            assert_eq!(numbers(list).as_deref(), expected, "{list}");
        }
        assert!(nodes() >= 1);
    }

    #[test]
    fn nodes_are_read_from_their_folder() {
        let root = std::env::temp_dir().join(format!("gannet-nodes-{}", std::process::id()));
        let write = |name: &str, text: &str| {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("online", "0,2-3\n");
        write("node0/cpulist", "0-1,4-5\n");
        write("node2/cpulist", "2-3\n");
        let missing = cpus_of_nodes(&root).unwrap_err().to_string();
        write("node3/cpulist", "\n");
        let found = cpus_of_nodes(&root).unwrap();
        write("node3/cpulist", "six\n");
        let wrong = cpus_of_nodes(&root).unwrap_err().to_string();
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, [vec![0, 1, 4, 5], vec![2, 3], vec![]]);
        assert!(missing.contains("node3/cpulist: "), "{missing}");
        assert!(wrong.ends_with("expected numbers such as 0-3,8, found \"six\""), "{wrong}");
    }

    /// Owners of some threads on some nodes, with the numbers of their CPUs.
    fn random(rng: &mut Rng) -> (Owners, usize, Vec<usize>) {
        let threads = 1 + rng.below(130) as usize;
        let nodes = 1 + rng.below(MAX_NODES as u64) as usize;
        let mut cpus: Vec<usize> = (0..nodes).map(|_| rng.below(65) as usize).collect();
        cpus[0] += 1;
        (Owners::new(threads, cpus.iter().copied()), threads, cpus)
    }

    #[test]
    fn every_thread_and_every_piece_is_of_one_node_in_proportion() {
        let mut rng = Rng::new(1);
        for _ in 0..2000 {
            let (owners, threads, cpus) = random(&mut rng);
            let (total, count) = (cpus.iter().sum::<usize>(), rng.below(5000) as usize);
            let (mut thread, mut piece) = (0, 0);
            for (node, cpus) in cpus.iter().enumerate() {
                let (own, pieces) = (owners.threads(node), owners.pieces(node, count));
                assert_eq!((own.start, pieces.start), (thread, piece), "one after the other");
                assert!(own.clone().all(|thread| owners.node_of(thread) == node));
                assert!((own.len() * total).abs_diff(threads * cpus) < total, "threads by CPUs");
                let of_count = pieces.len() * threads;
                assert!(of_count.abs_diff(count * own.len()) < threads, "pieces by threads");
                assert!(!own.is_empty() || pieces.is_empty());
                (thread, piece) = (own.end, pieces.end);
            }
            assert_eq!((thread, piece), (threads, count), "all of them");
        }
    }

    #[test]
    fn a_range_of_outputs_has_one_owner_however_finely_it_is_cut() {
        let mut rng = Rng::new(2);
        for _ in 0..2000 {
            let (owners, ..) = random(&mut rng);
            let node = rng.below(owners.nodes() as u64) as usize;
            let [one, other] = [0; 2].map(|_| 1 + rng.below(3000) as usize);
            let border = |count| owners.pieces(node, count).end as f64 / count as f64;
            let apart = (border(one) - border(other)).abs();
            assert!(apart <= 1.0 / one as f64 + 1.0 / other as f64, "{apart} at {one}, {other}");
        }
    }
}
