//! Traces of which experts rows have chosen: a file of JSON lines.
//!
//! The first line is the [`RouteHeader`]. Each further line is a layer of a step, an array of
//! numbers: the step, the layer, then for each expert with rows its number, its rows that count as
//! uses (decoded rows, and the last 32 of a prompt), and its other rows of prompts.
//!
//! Invariant: what is read has the layers and experts of its header.

mod header;
mod writer;

pub use header::RouteHeader;
pub(crate) use header::VERSION;
pub(crate) use writer::RouteWriter;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;

/// Most bytes of the header.
const MAX_HEADER: usize = 4 << 20;
/// Most bytes of a number with its comma.
const MAX_DIGITS: usize = 22;
/// Most entries that are read into memory.
const MAX_ENTRIES: usize = 1 << 26;

/// A layer of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteGroup {
    /// Number of the step.
    pub step: u64,
    /// Index of the layer among those with experts.
    pub layer: usize,
    /// Its entries among those of the trace.
    pub entries: Range<usize>,
}

/// An expert with rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteEntry {
    /// Number of the expert.
    pub expert: u32,
    /// Rows that count as uses.
    pub counted: u32,
    /// Other rows of prompts.
    pub others: u32,
}

/// A trace in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteTrace {
    /// The model.
    pub header: RouteHeader,
    /// The layers of all steps, in order.
    pub groups: Vec<RouteGroup>,
    /// What the groups consist of.
    pub entries: Vec<RouteEntry>,
}

impl RouteTrace {
    /// Reads a trace. A last line that is cut off is left out.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is no trace: with the file, the line, and what is wrong.
    pub fn read(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let file = File::open(path).map_err(|error| format!("cannot read {name}: {error}"))?;
        let mut lines = Lines { reader: BufReader::new(file), line: Vec::new(), number: 0 };
        Self::parse(&mut lines).map_err(|error| format!("{name}: line {}: {error}", lines.number))
    }

    fn parse(lines: &mut Lines<impl Read>) -> Result<Self, String> {
        let header = lines.next(MAX_HEADER)?.ok_or("expected a header, found none")?;
        let wrong = |error| format!("expected the header of a trace of routes: {error}");
        let header: RouteHeader = serde_json::from_slice(header).map_err(wrong)?;
        header.check()?;
        let longest = MAX_DIGITS * (2 + 3 * header.experts as usize) + 2;
        let mut trace = Self { header, groups: Vec::new(), entries: Vec::new() };
        while let Some(line) = lines.next(longest)? {
            let numbers: Vec<u64> = serde_json::from_slice(line)
                .map_err(|error| format!("expected numbers: {error}"))?;
            trace.push(&numbers)?;
        }
        Ok(trace)
    }

    /// Adds the layer of a step.
    fn push(&mut self, numbers: &[u64]) -> Result<(), String> {
        let Some(([step, layer], uses)) = numbers.split_first_chunk() else {
            return Err(format!("expected a step and a layer, found {} numbers", numbers.len()));
        };
        let (uses, rest) = uses.as_chunks::<3>();
        if uses.is_empty() || !rest.is_empty() {
            let found = 3 * uses.len() + rest.len();
            return Err(format!("expected three numbers for each expert, found {found}"));
        }
        let RouteHeader { layers, experts, .. } = &self.header;
        let layer = u32::try_from(*layer).ok().and_then(|it| layers.binary_search(&it).ok());
        let layer =
            layer.ok_or_else(|| format!("expected a layer of the header, found {numbers:?}"))?;
        let start = self.entries.len();
        for use_ in uses {
            let [expert, counted, others] = use_.map(|it| u32::try_from(it).unwrap_or(u32::MAX));
            if expert >= *experts || counted == u32::MAX || others == u32::MAX {
                return Err(format!(
                    "expected one of {experts} experts and its rows, found {use_:?}"
                ));
            }
            self.entries.push(RouteEntry { expert, counted, others });
        }
        if self.entries.len() > MAX_ENTRIES {
            return Err(format!("expected at most {MAX_ENTRIES} choices, found more"));
        }
        let entries = start..self.entries.len();
        self.groups.push(RouteGroup { step: *step, layer, entries });
        Ok(())
    }
}

/// Lines of bounded length.
struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    number: usize,
}

impl<R: Read> Lines<R> {
    /// The next whole line, without its end; `None` after the last.
    fn next(&mut self, longest: usize) -> Result<Option<&[u8]>, String> {
        self.number += 1;
        self.line.clear();
        let mut reader = (&mut self.reader).take(longest as u64 + 1);
        let read = reader.read_until(b'\n', &mut self.line);
        read.map_err(|error| format!("cannot read: {error}"))?;
        if self.line.pop_if(|byte| *byte == b'\n').is_some() {
            return Ok(Some(&self.line));
        }
        match self.line.len() > longest {
            true => Err(format!("expected at most {longest} bytes, found more")),
            false => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> RouteHeader {
        RouteHeader {
            gannet_routes: VERSION,
            checkpoint: "ab".into(),
            model: "m".into(),
            layers: vec![1, 3],
            experts: 4,
            chosen: 2,
            slot_bytes: vec![4096, 8192],
            read_bytes: vec![4000, 8000],
        }
    }

    fn parse(text: &str) -> Result<RouteTrace, String> {
        let reader = BufReader::new(text.as_bytes());
        RouteTrace::parse(&mut Lines { reader, line: Vec::new(), number: 0 })
    }

    #[test]
    fn lines_are_layers_of_steps_and_a_line_that_is_cut_off_is_left_out() {
        let head = serde_json::to_string(&header()).unwrap();
        let trace = parse(&format!("{head}\n[7,3,0,1,0,2,1,30]\n[8,1,3,1,0]\n[8,3,1,")).unwrap();
        assert_eq!(trace.header, header());
        let groups: Vec<_> = trace.groups.iter().map(|it| (it.step, it.layer)).collect();
        assert_eq!(groups, [(7, 1), (8, 0)]);
        let first = &trace.entries[trace.groups[0].entries.clone()];
        assert_eq!(first[1], RouteEntry { expert: 2, counted: 1, others: 30 });
        assert_eq!((trace.entries.len(), first.len()), (3, 2));
    }

    #[test]
    fn malformed_traces_are_errors() {
        let head = serde_json::to_string(&header()).unwrap();
        let change = |change: &dyn Fn(&mut RouteHeader)| {
            let mut header = header();
            change(&mut header);
            serde_json::to_string(&header).unwrap() + "\n"
        };
        let lines = [
            (String::new(), "expected a header"),
            ("{}\n".into(), "expected the header of a trace of routes"),
            (change(&|it| it.gannet_routes = 2), "gannet_routes: expected 1, found 2"),
            (change(&|it| it.layers = vec![3, 1]), "layers: expected ascending numbers"),
            (change(&|it| it.experts = 1 << 17), "experts: expected 1 to 65536, found 131072"),
            (change(&|it| (it.layers, it.experts) = ((0..65).collect(), 1 << 16)), "in all layers"),
            (change(&|it| it.chosen = 5), "chosen: expected 1 to 4, found 5"),
            (change(&|it| it.read_bytes = vec![0, 1]), "read_bytes: expected 2 sizes"),
            (change(&|it| it.slot_bytes[1] = 1 << 40), "slot_bytes: expected 2 sizes"),
            (format!("{head}\n{{}}\n"), "expected numbers"),
            (format!("{head}\n[1]\n"), "expected a step and a layer, found 1 numbers"),
            (format!("{head}\n[1,2,0,1,0]\n"), "expected a layer of the header"),
            (format!("{head}\n[1,1,0,1]\n"), "expected three numbers for each expert, found 2"),
            (format!("{head}\n[1,1,4,1,0]\n"), "expected one of 4 experts"),
            (format!("{head}\n[1,1,{}]\n", "0,1,0,".repeat(400)), "bytes, found more"),
        ];
        for (text, expected) in lines {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
