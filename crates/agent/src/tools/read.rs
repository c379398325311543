//! `read`: numbered lines of a file, which `edit` may then replace by their numbers.

use crate::error::ToolError;
use crate::printable::numbered;
use crate::schema::{member, nullable, object};
use crate::text_file::{TextFile, lines, without_end};
use crate::tool::{Tool, ToolOutput, arguments};
use crate::tool_result::FRAME_BYTES;
use crate::workspace::ToolWorkspace;
use serde::Deserialize;
use serde_json::Value;

/// Lines that are shown unless a call says how many.
const LINES: u64 = 500;

pub(crate) const TOOL: Tool = Tool {
    name: "read",
    description: "Shows lines of a text file with their numbers. If there are more, the last line \
        of the result says where to continue.",
    writes: false,
    schema,
    run,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadArguments {
    path: String,
    from: Option<u64>,
    lines: Option<u64>,
}

fn schema() -> Value {
    object(&[
        ("path", member("string", "file, from the workspace on")),
        ("from", nullable("integer", "number of the first line; 1 if null")),
        ("lines", nullable("integer", "how many lines; 500 if null")),
    ])
}

fn run(workspace: &mut ToolWorkspace, value: Value) -> Result<ToolOutput, ToolError> {
    let call: ReadArguments = arguments(TOOL.name, value)?;
    let path = workspace.resolve(&call.path)?;
    let file = TextFile::open(&path, &workspace.name(&path))?;
    let name = workspace.name(&file.path);
    let all = lines(file.body());
    let first = first_line(&call, &name, all.len())?;
    let count = usize::try_from(call.lines.unwrap_or(LINES).max(1)).unwrap_or(usize::MAX);
    let end = first.saturating_add(count).min(all.len());
    // A path may have the length of a whole result.
    let name = &name[..name.floor_char_boundary(workspace.limit() / 4)];
    let page = show(workspace, &file, (&all[first..end], first), name.len());
    let head = match all.len() {
        0 => format!("{name}: empty"),
        total => format!("{name}: lines {}-{} of {total}", first + 1, page.end),
    };
    let mut text = format!("{head}\n{}", page.text);
    if page.end < all.len() {
        text.push_str(&format!("[more from line {}]\n", page.end + 1));
    }
    Ok(ToolOutput::text(text))
}

/// The index of the first line to show.
fn first_line(call: &ReadArguments, name: &str, total: usize) -> Result<usize, ToolError> {
    let from = call.from.unwrap_or(1).max(1);
    match usize::try_from(from - 1) {
        Ok(first) if first < total || first == 0 => Ok(first),
        _ => {
            let text = format!("{name} has {total} lines; there is no line {from}");
            Err(ToolError::new(text))
        }
    }
}

/// Numbered lines, and the number of the last one.
struct Page {
    text: String,
    end: usize,
}

/// As many of `lines`, of which the first has the index `first`, as fit into a result with so many
/// other bytes.
fn show(
    workspace: &mut ToolWorkspace,
    file: &TextFile,
    (lines, first): (&[&[u8]], usize),
    others: usize,
) -> Page {
    let limit = workspace.limit() - others - FRAME_BYTES.min(workspace.limit() / 2);
    let mut page = Page { text: String::new(), end: first };
    for line in lines.iter().map(|line| without_end(line)) {
        let number = page.end + 1;
        let row = numbered(number, line);
        if page.text.len() + row.len() <= limit {
            page.text.push_str(&row);
            workspace.shown.add(&file.path, number as u64, line);
        } else if page.text.is_empty() {
            // Else no call could get past this line. A part of it is not known to be shown.
            let end = row.floor_char_boundary(limit - limit / 8);
            let rest = row.len() - end;
            page.text = format!("{}[... {rest} bytes of this line left out]\n", &row[..end]);
        } else {
            break;
        }
        page.end = number;
    }
    page
}
