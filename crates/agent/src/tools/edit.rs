//! `edit`: replaces one passage of a file, which the model names by its text or by its lines.
//!
//! Invariant: every byte outside the passage stays as it is, and within it the lines that the new
//! text repeats.

use super::nearest::nearest;
use super::passage::{Normal, Passage, Stops, UP_TO};
use crate::difference::{changes, difference, region};
use crate::error::ToolError;
use crate::printable::{numbered, printable};
use crate::replace::{check_mode, replace};
use crate::schema::{member, nullable, object};
use crate::shown::{LineSeen, Shown};
use crate::text_file::{TextFile, dominant_end, lines, with_short_ends, without_end};
use crate::tool::{Tool, ToolOutput, arguments};
use crate::tool_result::FRAME_BYTES;
use crate::workspace::ToolWorkspace;
use serde::Deserialize;
use serde_json::Value;
use similar::DiffOp;
use std::ops::Range;

/// Lines of the nearest passage, and numbers of lines, that an error shows.
const MAX_NEAREST: usize = 40;
const MAX_NUMBERS: usize = 10;

pub(crate) const TOOL: Tool = Tool {
    name: "edit",
    description: "Replaces one passage of a text file. Either old is the passage, which must occur \
        exactly once; in a long one a line [upto] may stand for all lines between its head and \
        its tail. Or lines is a range a:b of line numbers that were shown and have not changed. \
        Returns the difference.",
    writes: true,
    schema,
    run,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EditArguments {
    path: String,
    old: Option<String>,
    lines: Option<String>,
    new: String,
}

impl EditArguments {
    /// The passage and the range of lines. One that is empty beside the other is none.
    fn target(&self) -> (Option<&str>, Option<&str>) {
        match (self.old.as_deref(), self.lines.as_deref()) {
            (Some(""), Some(lines)) => (None, Some(lines)),
            (Some(old), Some("")) => (Some(old), None),
            target => target,
        }
    }
}

fn schema() -> Value {
    object(&[
        ("path", member("string", "file, from the workspace on")),
        ("old", nullable("string", "the passage as it is in the file; null if lines is given")),
        ("lines", nullable("string", "a:b, first and last line number; null if old is given")),
        ("new", member("string", "what replaces the passage")),
    ])
}

fn run(workspace: &mut ToolWorkspace, value: Value) -> Result<ToolOutput, ToolError> {
    edit(workspace, value, finish)
}

/// The difference that a call would make.
///
/// # Errors
///
/// If the call would fail.
pub(super) fn difference_of(
    workspace: &mut ToolWorkspace,
    value: Value,
) -> Result<String, ToolError> {
    edit(workspace, value, |_, target, body, note| {
        Ok(format!("{note}{}", difference(target.name, target.file.body(), body)))
    })
}

/// Finds the passage, and has `finish` do something with the file, its new body, and a note.
fn edit<T>(
    workspace: &mut ToolWorkspace,
    value: Value,
    finish: impl FnOnce(&mut ToolWorkspace, &EditTarget<'_>, &[u8], &str) -> Result<T, ToolError>,
) -> Result<T, ToolError> {
    let call: EditArguments = arguments(TOOL.name, value)?;
    let path = workspace.resolve(&call.path)?;
    let file = TextFile::open(&path, &workspace.name(&path))?;
    let name = workspace.name(&file.path);
    check_mode(&file.path, &name)?;
    let target = EditTarget { file: &file, name: &name, text: Normal::of(file.body()) };
    let new = with_short_ends(call.new.as_bytes());
    let (place, new, note) = match call.target() {
        (Some(old), None) => target.by_text(old, new, workspace)?,
        (None, Some(range)) => {
            let place = target.by_lines(range, &workspace.shown)?;
            let new = target.ended(&place, new);
            (place, new, "")
        }
        _ => return Err(ToolError::new("expected either old or lines; the other must be null")),
    };
    let body = target.replaced(place, &new);
    finish(workspace, &target, &body, note)
}

/// Writes the new body of the file and shows the difference.
fn finish(
    workspace: &mut ToolWorkspace,
    target: &EditTarget<'_>,
    body: &[u8],
    note: &str,
) -> Result<ToolOutput, ToolError> {
    let EditTarget { file, name, .. } = target;
    if body == file.body() {
        return Err(ToolError::new(format!("{name} would not change: old and new are the same")));
    }
    let failed = |source| ToolError::system(format_args!("cannot write {name}"), source);
    let before = workspace.keep(&file.path).map_err(failed)?;
    let whole = [file.mark(), body].concat();
    // After the file is replaced nothing can fail, so that the change is known.
    let text = workspace.fit(format!("{note}{}", difference(name, file.body(), body)))?;
    let change = workspace.change(&file.path, before, &whole);
    replace(&file.path, &whole, None).map_err(failed)?;
    let after = lines(body);
    let region = region(&lines(file.body()), &after);
    let new: Vec<&[u8]> =
        after[region.after.clone()].iter().map(|line| without_end(line)).collect();
    workspace.shown.replace(&file.path, &region, &new);
    Ok(ToolOutput { text, changed: vec![change] })
}

/// The file that is edited.
struct EditTarget<'a> {
    file: &'a TextFile,
    name: &'a str,
    text: Normal,
}

impl EditTarget<'_> {
    /// The one place of the passage `old`, what replaces it, and what the result says of it.
    fn by_text(
        &self,
        old: &str,
        new: Vec<u8>,
        workspace: &mut ToolWorkspace,
    ) -> Result<(Range<usize>, Vec<u8>, &'static str), ToolError> {
        let old = with_short_ends(old.as_bytes());
        let stops = Stops(&workspace.interrupt);
        let passage = self.passage(&old, stops)?;
        let exact = passage.exact(&self.text, stops)?;
        if !exact.is_empty() {
            return Ok((self.only(&exact, &passage)?, new, ""));
        }
        let loose = passage.loose(&self.text, stops)?;
        if !loose.is_empty() {
            let note = "old did not occur; taken was the one passage that is equal but for white \
                space\n";
            let place = self.only(&loose, &passage)?;
            // A last line without an end gets none.
            let new = if old.ends_with(b"\n") { self.ended(&place, new) } else { new };
            return Ok((place, new, note));
        }
        Err(self.missing(&passage, workspace))
    }

    /// What replaces the whole lines at `place`: with a line end where they have one, since the
    /// next line must not join the last, and without one at the end of a file without.
    fn ended(&self, place: &Range<usize>, mut new: Vec<u8>) -> Vec<u8> {
        match (self.text.bytes[place.clone()].ends_with(b"\n"), new.ends_with(b"\n")) {
            (true, false) if !new.is_empty() => new.push(b'\n'),
            (false, true) => drop(new.pop()),
            _ => {}
        }
        new
    }

    /// The passage `old`, in which a line `[upto]` is text if the file has it so.
    fn passage(&self, old: &[u8], stops: Stops<'_>) -> Result<Passage, ToolError> {
        let passage = Passage::parse(old)?;
        let plain = Passage::plain(old);
        let is_text = passage.is_joined() && !plain.exact(&self.text, stops)?.is_empty();
        Ok(if is_text { plain } else { passage })
    }

    fn only(&self, places: &[Range<usize>], passage: &Passage) -> Result<Range<usize>, ToolError> {
        if let [place] = places {
            return Ok(place.clone());
        }
        let numbers: Vec<String> =
            places.iter().take(MAX_NUMBERS).map(|place| self.numbers(place)).collect();
        let more = if places.len() > MAX_NUMBERS { " and more" } else { "" };
        let parts = if passage.is_joined() { ", as pairs of head and tail" } else { "" };
        Err(ToolError::new(format!(
            "old must occur exactly once in {}, but occurs {} times{parts}: lines {}{more}; add \
             lines around it, or use lines",
            self.name,
            places.len(),
            numbers.join(", "),
        )))
    }

    fn numbers(&self, place: &Range<usize>) -> String {
        let first = self.text.line(place.start);
        let last = self.text.line(place.end.saturating_sub(1).max(place.start));
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    }

    /// The error for a passage that does not occur, with the passage that is most like it: like
    /// its tail, if only that is missing.
    fn missing(&self, passage: &Passage, workspace: &mut ToolWorkspace) -> ToolError {
        let name = self.name;
        let (from, wanted) = passage.missing_part(&self.text);
        let what = match (passage.is_joined(), from) {
            (false, _) => format!("old does not occur in {name}"),
            (true, 0) => {
                format!("old does not occur in {name}: no head with a tail after {UP_TO}")
            }
            (true, _) => {
                let line = self.text.line(from - 1);
                format!("the head of old ends in line {line} of {name}, with no tail after it")
            }
        };
        let Some(place) = nearest(&self.text.bytes[from..], wanted) else {
            return ToolError::new(format!("{what}, nor a passage like it; read the file"));
        };
        let earlier = self.text.bytes[..from].iter().filter(|byte| **byte == b'\n').count();
        let place = earlier + place.start..earlier + place.end;
        let mut text = format!("{what}; the nearest passage is:\n");
        let most = workspace.limit() - FRAME_BYTES.min(workspace.limit() / 2);
        let all = lines(self.file.body());
        let mut end = place.start;
        for line in all[place.clone()].iter().take(MAX_NEAREST).map(|line| without_end(line)) {
            let row = numbered(end + 1, line);
            // What does not fit is not shown.
            if text.len() + row.len() > most {
                break;
            }
            end += 1;
            text.push_str(&row);
            workspace.shown.add(&self.file.path, end as u64, line);
        }
        if end < place.end {
            text.push_str(&format!("[up to line {}]\n", place.end));
        }
        ToolError::new(text)
    }

    /// The place of the lines `a:b`, all of which were shown and have not changed.
    fn by_lines(&self, range: &str, shown: &Shown) -> Result<Range<usize>, ToolError> {
        let (first, last) = numbers(range)?;
        let all = lines(&self.text.bytes);
        if last > all.len() {
            let text = format!("{} has {} lines; there is no line {last}", self.name, all.len());
            return Err(ToolError::new(text));
        }
        // Looked at with the ends of the file, as they were shown.
        let found = lines(self.file.body());
        for number in first..=last {
            let line = without_end(found[number - 1]);
            self.check_seen(number, shown.seen(&self.file.path, number as u64, line))?;
        }
        let start = all[..first - 1].iter().map(|line| line.len()).sum();
        let length: usize = all[first - 1..last].iter().map(|line| line.len()).sum();
        Ok(start..start + length)
    }

    fn check_seen(&self, number: usize, seen: LineSeen) -> Result<(), ToolError> {
        let name = self.name;
        let text = match seen {
            LineSeen::Unchanged => return Ok(()),
            LineSeen::Never => format!(
                "line {number} of {name} was not shown, or may have another number since an edit; \
                 read it first"
            ),
            LineSeen::Changed => {
                format!("line {number} of {name} has changed since it was shown; read it again")
            }
        };
        Err(ToolError::new(text))
    }

    /// The body of the file with `new` at `place`. Lines that both have keep their line ends.
    fn replaced(&self, place: Range<usize>, new: &[u8]) -> Vec<u8> {
        let body = self.file.body();
        let end = dominant_end(body);
        let (old, new) = (lines(&self.text.bytes[place.clone()]), lines(new));
        let mut result = body[..self.text.original(place.start)].to_owned();
        let mut at = place.start;
        for op in changes(&old, &new) {
            let length: usize = old[op.old_range()].iter().map(|line| line.len()).sum();
            if let DiffOp::Equal { .. } = op {
                let kept = self.text.original(at)..self.text.original(at + length);
                result.extend_from_slice(&body[kept]);
            } else {
                add_lines(&mut result, &new[op.new_range()], end);
            }
            at += length;
        }
        result.extend_from_slice(&body[self.text.original(place.end)..]);
        result
    }
}

/// Adds lines with short line ends, which become `end`.
fn add_lines(result: &mut Vec<u8>, lines: &[&[u8]], end: &[u8]) {
    for line in lines {
        match line.strip_suffix(b"\n") {
            Some(text) => {
                result.extend_from_slice(text);
                result.extend_from_slice(end);
            }
            None => result.extend_from_slice(line),
        }
    }
}

/// The numbers of a range `a:b`, or of the line `a`.
fn numbers(range: &str) -> Result<(usize, usize), ToolError> {
    let (first, last) = range.split_once(':').unwrap_or((range, range));
    match (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
        (Ok(first), Ok(last)) if 1 <= first && first <= last => Ok((first, last)),
        _ => {
            let text = format!(
                "lines must be a:b with 1 <= a <= b; found {}",
                printable(range.as_bytes())
            );
            Err(ToolError::new(text))
        }
    }
}
