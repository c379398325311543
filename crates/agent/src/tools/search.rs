//! `search`: lines of files that match a pattern.

use super::list::walk;
use crate::error::ToolError;
use crate::printable::printable;
use crate::schema::{member, nullable, object};
use crate::text_file::{without_end, without_mark};
use crate::tool::{Tool, ToolOutput, arguments};
use crate::tool_result::FRAME_BYTES;
use crate::workspace::ToolWorkspace;
use globset::{GlobBuilder, GlobMatcher};
use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Matching lines, by default and at most; lines around each; characters of a line.
const MATCHES: usize = 50;
const MAX_MATCHES: usize = 500;
const MAX_CONTEXT: usize = 5;
const MAX_LINE_CHARS: usize = 300;

/// Bytes of a compiled pattern, and of a line that is held in memory.
const MAX_PATTERN_BYTES: usize = 10 << 20;
const MAX_LINE_BYTES: usize = 16 << 20;

pub(crate) const TOOL: Tool = Tool {
    name: "search",
    description: "Searches files for lines that match a regular expression (Rust syntax, as in \
        ripgrep; (?i) ignores case) and shows path, line number and text. Binary files and files \
        that git ignores are left out.",
    writes: false,
    schema,
    run,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchArguments {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    context: Option<usize>,
    literal: Option<bool>,
    max: Option<usize>,
}

fn schema() -> Value {
    object(&[
        ("pattern", member("string", "regular expression, or text if literal is true")),
        ("path", nullable("string", "folder or file to search; the workspace if null")),
        ("glob", nullable("string", "files to search, such as *.rs or src/**/*.py; all if null")),
        ("context", nullable("integer", "lines to show around each match, 0 to 5; 0 if null")),
        ("literal", nullable("boolean", "whether the pattern is plain text; false if null")),
        ("max", nullable("integer", "matches to show, at most 500; 50 if null")),
    ])
}

fn run(workspace: &mut ToolWorkspace, value: Value) -> Result<ToolOutput, ToolError> {
    let call: SearchArguments = arguments(TOOL.name, value)?;
    let matcher = matcher(&call)?;
    let glob = call.glob.as_deref().map(glob).transpose()?;
    let root = workspace.resolve(call.path.as_deref().unwrap_or("."))?;
    let name = workspace.name(&root);
    let root = fs::canonicalize(&root)
        .map_err(|source| ToolError::system(format_args!("cannot search {name}"), source))?;
    let max = call.max.unwrap_or(MATCHES).clamp(1, MAX_MATCHES);
    let mut found = Matches { workspace, text: String::new(), matches: 0, max, is_cut: false };
    let mut searcher = searcher(call.context.unwrap_or(0).min(MAX_CONTEXT));
    let mut skipped = 0;
    for entry in walk(&root).build() {
        let searched = match entry {
            Ok(entry) if is_taken(&root, entry.path(), glob.as_ref()) => {
                let sink = FileSink::new(entry.path(), &mut found);
                searcher.search_path(&matcher, entry.path(), sink).is_ok()
            }
            entry => entry.is_ok(),
        };
        skipped += usize::from(!searched);
        if found.is_cut || found.workspace.interrupt.is_cancelled() {
            break;
        }
    }
    Ok(ToolOutput::text(found.result(skipped)))
}

/// Whether a path is that of a file to search. Links are not followed, and pipes would wait.
fn is_taken(root: &Path, path: &Path, glob: Option<&Glob>) -> bool {
    let is_file = fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    is_file && glob.is_none_or(|glob| glob.takes(root, path))
}

fn matcher(call: &SearchArguments) -> Result<RegexMatcher, ToolError> {
    RegexMatcherBuilder::new()
        .fixed_strings(call.literal.unwrap_or(false))
        .multi_line(true)
        .crlf(true)
        .size_limit(MAX_PATTERN_BYTES)
        .build(&call.pattern)
        .map_err(|error| {
            ToolError::new(format!(
                "the pattern is no regular expression: {error}; literal searches for plain text"
            ))
        })
}

fn searcher(context: usize) -> Searcher {
    SearcherBuilder::new()
        .line_number(true)
        .line_terminator(LineTerminator::crlf())
        .before_context(context)
        .after_context(context)
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(MAX_LINE_BYTES))
        // Lines are remembered as they are in the file.
        .bom_sniffing(false)
        .build()
}

/// Which files are searched.
struct Glob {
    matcher: GlobMatcher,
    /// A pattern without folders is one for names.
    is_name: bool,
}

fn glob(pattern: &str) -> Result<Glob, ToolError> {
    let built = GlobBuilder::new(pattern).literal_separator(true).build();
    let wrong = |error| ToolError::new(format!("the glob is not valid: {error}"));
    let matcher = built.map_err(wrong)?.compile_matcher();
    Ok(Glob { matcher, is_name: !pattern.contains('/') })
}

impl Glob {
    fn takes(&self, root: &Path, path: &Path) -> bool {
        let name = path.file_name().map(Path::new);
        let below = path.strip_prefix(root).ok().filter(|below| !below.as_os_str().is_empty());
        let compared = if self.is_name { name } else { below.or(name) };
        compared.is_some_and(|compared| self.matcher.is_match(compared))
    }
}

/// What was found so far.
struct Matches<'a> {
    workspace: &'a mut ToolWorkspace,
    text: String,
    matches: usize,
    max: usize,
    /// Whether there was no place for a line.
    is_cut: bool,
}

impl Matches<'_> {
    /// Adds a row if it fits.
    fn add(&mut self, row: &str) -> bool {
        let limit = self.workspace.limit() - FRAME_BYTES.min(self.workspace.limit() / 2);
        self.is_cut |= self.text.len() + row.len() > limit;
        if !self.is_cut {
            self.text.push_str(row);
        }
        !self.is_cut
    }

    fn result(self, skipped: usize) -> String {
        let mut text = match self.matches {
            0 => "no matches\n".to_owned(),
            1 => format!("1 match\n{}", self.text),
            matches => format!("{matches} matches\n{}", self.text),
        };
        if self.is_cut {
            text.push_str("[there are more matches; narrow the search, or raise max]\n");
        }
        if skipped > 0 {
            text.push_str(&format!("[{skipped} files or folders could not be read]\n"));
        }
        if self.workspace.interrupt.is_cancelled() {
            text.push_str("[interrupted]\n");
        }
        text
    }
}

/// Takes the lines of one file.
struct FileSink<'a, 'w> {
    name: String,
    path: PathBuf,
    found: &'a mut Matches<'w>,
}

impl<'a, 'w> FileSink<'a, 'w> {
    fn new(path: &Path, found: &'a mut Matches<'w>) -> Self {
        Self { name: found.workspace.name(path), path: path.to_owned(), found }
    }

    /// Adds a line, after `:` if it matches and `-` if it is around a match.
    fn line(&mut self, number: u64, bytes: &[u8], sign: char) -> bool {
        let line = without_end(bytes);
        let line = if number == 1 { without_mark(line) } else { line };
        let text = printable(line);
        let short = shortened(&text);
        let row = format!("{}{sign}{number}{sign} {short}\n", self.name);
        let is_added = self.found.add(&row);
        // A part of a line is not known to be shown.
        if is_added && short.len() == text.len() {
            self.found.workspace.shown.add(&self.path, number, line);
        }
        is_added
    }
}

/// At most the first 300 characters, and a mark where others follow.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_LINE_CHARS) {
        Some((end, _)) => format!("{} [...]", &text[..end]),
        None => text.to_owned(),
    }
}

impl Sink for FileSink<'_, '_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.found.matches == self.found.max {
            self.found.is_cut = true;
            return Ok(false);
        }
        let number = found.line_number().unwrap_or(0);
        let is_added = self.line(number, found.bytes(), ':');
        self.found.matches += usize::from(is_added);
        Ok(is_added && !self.found.workspace.interrupt.is_cancelled())
    }

    fn context(&mut self, _: &Searcher, around: &SinkContext<'_>) -> Result<bool, io::Error> {
        let number = around.line_number().unwrap_or(0);
        Ok(self.line(number, around.bytes(), '-'))
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, io::Error> {
        Ok(self.found.add("--\n"))
    }
}
