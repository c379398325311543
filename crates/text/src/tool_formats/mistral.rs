//! Mistral's calls: a JSON array, or a name with its arguments behind it.

use crate::call_reader::Flow;
use crate::call_reader::call::{Call, NamedCall};
use crate::call_reader::listed::Listed;
use crate::call_reader::literals::{Literals, Scan};

const PARTS: [&str; 3] = ["[ARGS]", "[CALL_ID]", "{"];

/// The state of reading one, from behind `[TOOL_CALLS]` or from a later object of an array.
#[derive(Clone, Debug)]
pub(crate) struct Mistral {
    state: MistralState,
    name: String,
    literals: Literals,
}

#[derive(Clone, Debug)]
enum MistralState {
    Start,
    Listed(Listed),
    Name,
    Id,
    Arguments(NamedCall),
}

impl Mistral {
    pub fn new(literal: &str) -> Self {
        let state = match literal {
            "{" => MistralState::Listed(Listed::new(literal, true)),
            _ => MistralState::Start,
        };
        Mistral { state, name: String::new(), literals: Literals::default() }
    }

    pub fn push(&mut self, c: char, call: &mut Call) -> Flow {
        match &mut self.state {
            MistralState::Start if c.is_whitespace() => Flow::More,
            MistralState::Start if c == '[' || c == '{' => {
                let mut listed = Listed::new("[TOOL_CALLS]", true);
                let flow = listed.push(c, call);
                self.state = MistralState::Listed(listed);
                flow
            }
            MistralState::Start => {
                self.state = MistralState::Name;
                self.part(c, call)
            }
            MistralState::Listed(listed) => listed.push(c, call),
            MistralState::Name | MistralState::Id => self.part(c, call),
            MistralState::Arguments(named) => named.push(c, call).into(),
        }
    }

    pub fn finish(&mut self, call: &mut Call) -> bool {
        match &mut self.state {
            MistralState::Listed(listed) => listed.finish(call),
            _ => false,
        }
    }

    /// In the name, or in the id behind it.
    fn part(&mut self, c: char, call: &mut Call) -> Flow {
        match self.literals.push(PARTS.into_iter(), c) {
            Scan::Partial => Flow::More,
            Scan::Whole(1) => {
                self.state = MistralState::Id;
                Flow::More
            }
            Scan::Whole(index) => self.arguments(index == 2, call),
            Scan::None if !self.literals.is_empty() => Flow::Refused,
            Scan::None if matches!(self.state, MistralState::Id) => Flow::More,
            Scan::None => {
                self.name.push(c);
                if call.may_name(self.name.trim_end()) { Flow::More } else { Flow::Refused }
            }
        }
    }

    /// The name is complete; `begun`: so is the first brace of the arguments.
    fn arguments(&mut self, begun: bool, call: &mut Call) -> Flow {
        let name = self.name.trim_end();
        if call.tool(name).is_none() {
            return Flow::Refused;
        }
        let mut named = NamedCall::new(name);
        let flow = if begun { named.push('{', call).into() } else { Flow::More };
        self.state = MistralState::Arguments(named);
        flow
    }
}
