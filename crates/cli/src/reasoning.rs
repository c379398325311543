//! The arguments for the reasoning before an answer, and the template's variables for them.

#[cfg(any(feature = "chat", feature = "tools"))]
use crate::sessions::Session;
use clap::builder::PossibleValuesParser;
use serde_json::{Map, Value, json};

/// Whether the model reasons before it answers, and how much.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ReasoningArgs {
    /// Turn reasoning before the answer on, if the template has a choice
    #[arg(long, conflicts_with = "no_think")]
    think: bool,
    /// Turn reasoning before the answer off, if the template has a choice
    #[arg(long)]
    no_think: bool,
    /// How much the model reasons, if the template has a choice; none turns reasoning off
    #[arg(long, value_name = "EFFORT", conflicts_with_all = ["think", "no_think"])]
    #[arg(value_parser = PossibleValuesParser::new(api::EFFORTS))]
    effort: Option<String>,
}

impl ReasoningArgs {
    fn think(&self) -> Option<bool> {
        (self.think || self.no_think).then_some(self.think)
    }

    /// The effort, unless a flag turns reasoning on or off.
    fn effort(&self) -> Option<&str> {
        self.effort.as_deref().filter(|_| self.think().is_none())
    }

    /// The variables of the template.
    pub fn kwargs(&self) -> Map<String, Value> {
        kwargs(self.think(), self.effort())
    }

    /// The variables of the template, with the choice of a session where none was given.
    #[cfg(any(feature = "chat", feature = "tools"))]
    pub fn kwargs_over(&self, session: Option<&Session>) -> Map<String, Value> {
        let given = self.kwargs();
        if given.is_empty() {
            session.map(Session::reasoning_kwargs).unwrap_or_default()
        } else {
            given
        }
    }

    /// Sets what was given in a session.
    #[cfg(any(feature = "chat", feature = "tools"))]
    pub fn over(&self, session: &mut Session) {
        if !self.kwargs().is_empty() {
            (session.think, session.effort) = (self.think(), self.effort().map(str::to_owned));
        }
    }
}

#[cfg(any(feature = "chat", feature = "tools"))]
impl Session {
    /// The variables of the template for the reasoning of the next answer.
    pub fn reasoning_kwargs(&self) -> Map<String, Value> {
        kwargs(self.think, self.effort.as_deref())
    }
}

/// The variables of the template for this effort.
#[cfg(feature = "agent")]
pub(crate) fn of_effort(effort: &str) -> Map<String, Value> {
    kwargs(None, Some(effort))
}

fn kwargs(think: Option<bool>, effort: Option<&str>) -> Map<String, Value> {
    let think = think.map(|think| ("enable_thinking".to_owned(), json!(think)));
    let effort = effort.map(|effort| ("reasoning_effort".to_owned(), json!(effort)));
    think.into_iter().chain(effort).collect()
}

#[cfg(test)]
#[cfg(any(feature = "chat", feature = "tools"))]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct ReasoningProgram {
        #[command(flatten)]
        args: ReasoningArgs,
    }

    fn check(args: &[&str], expected: Option<Value>) {
        let args = std::iter::once("program").chain(args.iter().copied());
        let parsed = ReasoningProgram::try_parse_from(args).ok();
        assert_eq!(parsed.map(|it| Value::Object(it.args.kwargs())), expected);
    }

    #[test]
    fn one_choice_of_reasoning_is_taken() {
        check(&[], Some(json!({})));
        check(&["--think"], Some(json!({"enable_thinking": true})));
        check(&["--no-think"], Some(json!({"enable_thinking": false})));
        check(&["--effort", "low"], Some(json!({"reasoning_effort": "low"})));
        check(&["--effort", "some"], None);
        check(&["--think", "--no-think"], None);
        check(&["--effort", "low", "--think"], None);
    }
}
