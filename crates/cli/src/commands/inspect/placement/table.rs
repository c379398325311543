//! Groups as a table.

use super::super::report::size;
use super::groups::PlacementGroup;
use models::placement::Placed;

const HEAD: [&str; 12] = [
    "kind", "layers", "tensors", "stored", "held", "mode", "memory", "device", "threads", "numa",
    "rule", "bytes",
];

/// Right-aligned columns.
const NUMBERS: [&str; 2] = ["tensors", "bytes"];

/// A header and one line per group.
pub(super) fn table(groups: &[PlacementGroup<'_>]) -> String {
    let rows: Vec<_> =
        std::iter::once(HEAD.map(str::to_owned)).chain(groups.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<_> = (0..HEAD.len()).map(width).collect();
    let line = |row: &[String; 12]| {
        let cells = row.iter().zip(&widths).zip(HEAD).map(|((cell, width), name)| {
            match NUMBERS.contains(&name) {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            }
        });
        cells.collect::<Vec<_>>().join("  ") + "\n"
    };
    rows.iter().map(line).collect()
}

fn row(group: &PlacementGroup<'_>) -> [String; 12] {
    let placed = group.placed;
    let or_dash = |text: Option<usize>| text.map_or("-".to_owned(), |number| number.to_string());
    let layers = Some(group.layers()).filter(|layers| !layers.is_empty());
    [
        group.kind.name().to_owned(),
        layers.unwrap_or_else(|| "-".to_owned()),
        group.tensors.to_string(),
        group.stored.name.to_owned(),
        placed.ty.name.to_owned(),
        placed.mode.name().to_owned(),
        placed.memory.name().to_owned(),
        placed.device.name.to_owned(),
        threads(placed),
        or_dash(placed.numa),
        or_dash(placed.rule),
        size(group.bytes),
    ]
}

/// Threads of prefill and decode, as one number where they are equal.
fn threads(placed: &Placed) -> String {
    let name = |threads: Option<usize>| threads.map_or("all".to_owned(), |most| most.to_string());
    let (prefill, decode) = (name(placed.prefill_threads), name(placed.decode_threads));
    if prefill == decode { prefill } else { format!("{prefill}/{decode}") }
}
