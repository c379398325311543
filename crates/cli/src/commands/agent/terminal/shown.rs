//! What the terminal shows.

/// What is shown.
#[derive(Clone, Debug)]
pub enum TerminalEvent {
    /// A piece of the model's text.
    Text(String),
    /// A piece of its reasoning.
    Reasoning(String),
    /// A call that is carried out.
    Call {
        /// The tool.
        tool: String,
        /// The arguments, in short.
        detail: String,
    },
    /// The result of the call.
    Result {
        /// Whether the call has succeeded.
        ok: bool,
        /// The result, of which the first lines are shown.
        text: String,
    },
    /// A note of the program.
    Note(String),
    /// The numbers below the editor.
    Status(TurnStatus),
    /// Whether the model works.
    Working(bool),
}

/// The numbers below the editor.
#[derive(Clone, Debug, Default)]
pub struct TurnStatus {
    /// Tokens that the context can have; 0 if that is not known.
    pub context: usize,
    /// Tokens that it has.
    pub used: usize,
    /// Tokens of the turn that were in the cache.
    pub cached: usize,
    /// Tokens of the turn that were computed.
    pub computed: usize,
    /// Tokens of the turn that were generated.
    pub generated: usize,
    /// Tokens of the prompt that are computed in a second.
    pub prefill_rate: Option<f64>,
    /// Tokens that are generated in a second.
    pub rate: Option<f64>,
    /// Tokens of the prompt that are computed, and all of them, while it is being computed.
    pub prefill: Option<(usize, usize)>,
    /// Commands that run in the background.
    pub jobs: usize,
    /// What the sandbox allows.
    pub sandbox: String,
    /// What is asked, or that the model plans.
    pub mode: String,
}
