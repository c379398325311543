//! How grammars write calls: the texts around names and arguments.

/// The syntax of a block of calls. `NAME` stands for the name of the tool.
#[derive(Clone, Copy)]
pub(crate) struct CallSyntax {
    /// Begins the block.
    pub open: &'static str,
    /// Begins a call, and the block where no token does.
    pub begin: &'static str,
    /// Text between `begin` and the arguments.
    pub before: &'static str,
    /// Text after the arguments.
    pub after: &'static str,
    /// Text between two calls.
    pub between: &'static str,
    /// Ends the block.
    pub close: &'static str,
    /// How arguments are written one by one; `None` if they are one JSON object.
    pub parameters: Option<ParameterSyntax>,
    /// Whether a block may hold several calls.
    pub many: bool,
    /// Content of an answer besides calls.
    pub answer: AnswerSyntax,
    /// The syntax for vocabularies that have no token of the given text.
    pub without: Option<(&'static str, &'static CallSyntax)>,
}

/// The syntax of one argument. `KEY` stands for its name.
#[derive(Clone, Copy)]
pub(crate) struct ParameterSyntax {
    /// Text before a string, which is written without quotes.
    pub text: &'static str,
    /// Text before another value, which is written as JSON.
    pub json: &'static str,
    /// Text after the value, in which `KEY` may stand for the name too.
    pub close: &'static str,
    /// What readers take for the end of a string wherever it stands.
    pub end: &'static str,
    /// What readers take for `end` and `>` within a string, if there is such a text.
    pub escaped_end: Option<&'static str>,
    /// Returns a name as it is written; `None` if readers would read another.
    pub key: fn(&str) -> Option<String>,
}

/// Content of an answer besides calls if no call is required.
#[derive(Clone, Copy)]
pub(crate) enum AnswerSyntax {
    /// Text, after which calls may begin.
    TextThenCalls,
    /// A call, or text that cannot be taken for one.
    TextOrCall,
    /// Messages of channels.
    Messages(&'static MessageSyntax),
}

/// The syntax of an answer of several messages.
pub(crate) struct MessageSyntax {
    /// Tokens that the vocabulary needs.
    pub tokens: &'static [&'static str],
    /// Text before the name of a channel or recipient.
    pub header: &'static str,
    /// Text between that name and the message.
    pub message: &'static str,
    /// Ends a message and begins the next one.
    pub next: &'static str,
    /// Names of messages before the answer.
    pub before: &'static [&'static str],
    /// The name of the answer.
    pub answer: &'static str,
}

impl CallSyntax {
    /// Calls with nothing around the JSON object of their arguments.
    pub const PLAIN: Self = Self {
        open: "",
        begin: "",
        before: "",
        after: "",
        between: "",
        close: "",
        parameters: None,
        many: true,
        answer: AnswerSyntax::TextThenCalls,
        without: None,
    };
}
