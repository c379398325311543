//! Calls whose name and arguments stand between tags: arguments are plain text, one by one.

use super::call::Call;
use super::literals::{Literals, Scan};
use super::reader::{CallReader, Flow};
use super::text_arguments::TextArguments;
use std::borrow::Cow;
use std::sync::Arc;

/// A tag.
type Tag = Cow<'static, str>;

/// The tags of calls. White space between them says nothing.
#[derive(Clone, Debug)]
pub(crate) struct CallTags {
    /// Before a block of calls, where no literal of the format begins it.
    pub open: Tag,
    /// Before a call; empty if its name follows the beginning of the block.
    pub call: Tag,
    /// Before and after the name of a tool. Without a tag after it, white space or the next tag
    /// ends the name.
    pub name: [Tag; 2],
    /// A tag that may follow the name; empty if there is none.
    pub separator: Tag,
    /// Before and after the name of an argument.
    pub key: [Tag; 2],
    /// Before a value; empty if the value follows the name.
    pub value: Tag,
    /// What ends a value: the first option that is found.
    pub ends: [Tag; 2],
    /// Whether one line break before a value belongs to the tags.
    pub leads: bool,
    /// Ends a call.
    pub close: Tag,
    /// Ends a block of several calls; empty if the end of a call is all.
    pub block: Tag,
}

impl CallTags {
    /// Tags without any text.
    pub const NONE: Self = {
        const NO: Tag = Cow::Borrowed("");
        Self {
            open: NO,
            call: NO,
            name: [NO, NO],
            separator: NO,
            key: [NO, NO],
            value: NO,
            ends: [NO, NO],
            leads: false,
            close: NO,
            block: NO,
        }
    };

    /// The tags with `suffix` at the end of each name.
    pub fn with_suffix(&self, suffix: &str) -> Self {
        let tag = |tag: &Tag| -> Tag { tag.replace('>', &format!("{suffix}>")).into() };
        let both = |tags: &[Tag; 2]| [tag(&tags[0]), tag(&tags[1])];
        Self {
            open: tag(&self.open),
            call: tag(&self.call),
            name: both(&self.name),
            separator: tag(&self.separator),
            key: both(&self.key),
            value: tag(&self.value),
            ends: both(&self.ends),
            leads: self.leads,
            close: tag(&self.close),
            block: tag(&self.block),
        }
    }
}

/// Reads one call, or a block of calls.
#[derive(Debug)]
pub(crate) struct TaggedCalls {
    tags: Arc<CallTags>,
    state: TaggedState,
    literals: Literals,
    /// The name of the tool or of the argument so far.
    name: String,
    arguments: TextArguments,
    /// Whether a call of the block has ended.
    called: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaggedState {
    /// Before the tag of the block.
    Open,
    /// Before a call of a block, or before its end.
    Block,
    /// Before the tag of the name.
    Begin,
    Name,
    Members,
    Key,
    /// Before the tag of the value.
    Gap,
    /// At the start of a value before which one line break may stand.
    Lead,
    Value,
}

impl CallReader for TaggedCalls {
    fn push(&mut self, c: char, call: &mut Call) -> Flow {
        self.step(c, call).unwrap_or(Flow::Refused)
    }

    /// The end of a block may be cut off or left out.
    fn finish(&mut self, _truncated: bool, _call: &mut Call) -> bool {
        self.is_between() && self.literals.may_become(&self.tags.block)
    }
}

impl TaggedCalls {
    /// A reader after the literal `begun`, which is one of the tags or begins a block; before the
    /// tag of the block if it is empty.
    pub fn new(tags: CallTags, begun: &str) -> Self {
        let state = match begun {
            "" => TaggedState::Open,
            _ if *begun == *tags.name[0] => TaggedState::Name,
            _ if *begun == *tags.call || tags.block.is_empty() => Self::called(&tags),
            _ => TaggedState::Block,
        };
        let (literals, name, arguments) = <(Literals, String, TextArguments)>::default();
        TaggedCalls { tags: Arc::new(tags), state, literals, name, arguments, called: false }
    }

    /// Whether a call has ended and no other has begun.
    pub fn is_between(&self) -> bool {
        self.called && self.state == TaggedState::Block
    }

    /// The state after the tag of a call.
    fn called(tags: &CallTags) -> TaggedState {
        if tags.name[0].is_empty() { TaggedState::Name } else { TaggedState::Begin }
    }

    /// Takes the next character; `None` if it cannot follow.
    fn step(&mut self, c: char, call: &mut Call) -> Option<Flow> {
        let tags = Arc::clone(&self.tags);
        match self.state {
            TaggedState::Open => match self.tag(&[&tags.open, &tags.name[0]], c)? {
                Some(0) => self.state = TaggedState::Block,
                Some(_) => self.begin(TaggedState::Name),
                None => {}
            },
            TaggedState::Block => return self.block(&tags, c),
            TaggedState::Begin => {
                if self.tag(&[&tags.name[0]], c)?.is_some() {
                    self.begin(TaggedState::Name);
                }
            }
            TaggedState::Name => self.name(&tags, c, call)?,
            TaggedState::Members => return self.members(&tags, c, call),
            TaggedState::Key => self.key(&tags, c, call)?,
            TaggedState::Gap => {
                if self.tag(&[&tags.value], c)?.is_some() {
                    self.state = TaggedState::Value;
                }
            }
            TaggedState::Lead => {
                self.state = TaggedState::Value;
                if c != '\n' {
                    self.value(&tags, c, call);
                }
            }
            TaggedState::Value => self.value(&tags, c, call),
        }
        Some(Flow::More)
    }

    /// Takes white space or a character of one of `options`, of which empty ones do not count.
    /// Returns the option that is whole; `None` if the character cannot follow.
    fn tag(&mut self, options: &[&str], c: char) -> Option<Option<usize>> {
        match self.literals.push(options.iter().copied(), c) {
            Scan::Partial => Some(None),
            Scan::Whole(index) => Some(Some(index)),
            Scan::None => (self.literals.is_empty() && c.is_whitespace()).then_some(None),
        }
    }

    fn begin(&mut self, state: TaggedState) {
        self.name.clear();
        self.state = state;
    }

    fn block(&mut self, tags: &CallTags, c: char) -> Option<Flow> {
        let first = if tags.call.is_empty() { &tags.name[0] } else { &tags.call };
        match self.tag(&[first, &tags.block], c)? {
            Some(0) if tags.call.is_empty() => self.begin(TaggedState::Name),
            Some(0) => self.begin(Self::called(tags)),
            Some(_) => return self.called.then_some(Flow::Complete),
            None => {}
        }
        Some(Flow::More)
    }

    fn name(&mut self, tags: &CallTags, c: char, call: &mut Call) -> Option<()> {
        let end = &*tags.name[1];
        if end.is_empty() {
            if self.name.is_empty() && c.is_whitespace() {
                return Some(());
            }
            if c == '<' || c.is_whitespace() {
                self.start(call)?;
                return self.members(tags, c, call).map(drop);
            }
            self.name.push(c);
        } else {
            let (text, ended) = self.literals.feed([end].into_iter(), c);
            self.name.push_str(&text);
            if ended.is_some() {
                return self.start(call);
            }
        }
        call.may_name(&self.name).then_some(())
    }

    /// Takes the end of the name of a tool.
    fn start(&mut self, call: &mut Call) -> Option<()> {
        call.tool(&self.name)?;
        self.arguments.start(&self.name, call);
        self.state = TaggedState::Members;
        Some(())
    }

    fn members(&mut self, tags: &CallTags, c: char, call: &mut Call) -> Option<Flow> {
        match self.tag(&[&tags.key[0], &tags.close, &tags.separator], c)? {
            Some(0) => self.begin(TaggedState::Key),
            Some(1) => {
                self.arguments.end(call);
                self.called = true;
                self.state = TaggedState::Block;
                return Some(if tags.block.is_empty() { Flow::Over } else { Flow::More });
            }
            _ => {}
        }
        Some(Flow::More)
    }

    fn key(&mut self, tags: &CallTags, c: char, call: &mut Call) -> Option<()> {
        let (text, ended) = self.literals.feed([&*tags.key[1]].into_iter(), c);
        self.name.push_str(&text);
        if text.contains(['\n', '<']) {
            return None;
        }
        if ended.is_some() {
            self.arguments.key(&self.name, call);
            self.state = match () {
                () if !tags.value.is_empty() => TaggedState::Gap,
                () if tags.leads => TaggedState::Lead,
                () => TaggedState::Value,
            };
        }
        Some(())
    }

    fn value(&mut self, tags: &CallTags, c: char, call: &mut Call) {
        let options = tags.ends.iter().map(|tag| &**tag);
        let (text, ended) = self.literals.feed(options, c);
        self.arguments.push(&text, call);
        if ended.is_some() {
            self.arguments.close(call);
            self.state = TaggedState::Members;
        }
    }
}
