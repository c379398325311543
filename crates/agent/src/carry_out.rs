//! Carrying out a call of the model: the decision whether it runs, the call of the tool, and the
//! questions about guarded files.

use crate::agent_loop::{Agent, AgentError, id};
use crate::host_process::{HostError, HostProcess};
use crate::other_tools;
use crate::policy::{CallReach, Decision};
use crate::request::{ACCEPT, GUARD, ToolAnswer};
use crate::resumed::result_message;
use crate::rules::RuleSubject;
use crate::schema_fault::schema_fault;
use crate::session_log::Record;
use crate::token_count::BYTES_PER_TOKEN;
use crate::tool::Tool;
use crate::tool_result::MAX_RESULT_BYTES;
use crate::tools::TOOLS;
use crate::tools::preview::{PREVIEW, PREVIEWED};
use crate::user::{AgentEvent, AgentUser, Question, Reply};
use api::ToolCall;
use serde_json::json;

/// Most bytes of what is wrong with a call.
const MAX_FAULT_BYTES: usize = 1 << 10;

/// What the user reads after a no to a change that could not be undone.
const NOT_UNDONE: &str = "the change could not be undone and is still there";

/// The tool that looks at jobs, and writes nothing where it does not stop one.
const JOB: &str = "job";

impl Agent {
    /// Carries out a call, or says why not, and adds the message for the model. Says whether there
    /// was space for its result.
    pub(crate) fn carry_out(
        &mut self,
        call: &ToolCall,
        user: &mut dyn AgentUser,
    ) -> Result<bool, AgentError> {
        match self.refusal(call, user)? {
            Some(reason) => {
                let answer = ToolAnswer::refused(None, reason);
                user.show(AgentEvent::Result(call, &answer));
                self.skip(call, &answer.text)?;
                Ok(true)
            }
            None => self.call(call, user),
        }
    }

    /// Why a call does not run; `None` if it does.
    fn refusal(
        &mut self,
        call: &ToolCall,
        user: &mut dyn AgentUser,
    ) -> Result<Option<String>, AgentError> {
        let Some(reach) = self.reach(call) else {
            return Ok(Some(cut(format!("there is no tool {}", call.name))));
        };
        if let Some(fault) = self.fault(call) {
            return Ok(Some(cut(fault)));
        }
        let decision = self.policy.decide(&reach);
        let preview = if decision == Decision::Ask { self.preview(call)? } else { None };
        let question = Question::Call(call, reach.rule(), preview);
        let reply = match decision {
            Decision::Run => return Ok(None),
            Decision::Refuse(why) => {
                user.show(AgentEvent::Refused(&question, why));
                Reply::No(Some(why.to_owned()))
            }
            Decision::Ask => user.ask(&question, self.limits.end),
        };
        self.session.add_reply(id(call), &question, &reply)?;
        match reply {
            Reply::Once => Ok(None),
            Reply::Session => {
                self.policy.rules.extend(reach.rule());
                Ok(None)
            }
            Reply::No(reason) => {
                self.has_refused = true;
                let reason = reason.map_or(String::new(), |reason| format!(": {reason}"));
                Ok(Some(format!("the call was refused{reason}")))
            }
        }
    }

    /// The difference that a call would make; `None` of one that has none, or would fail.
    fn preview(&mut self, call: &ToolCall) -> Result<Option<String>, AgentError> {
        if !PREVIEWED.contains(&call.name.as_str()) {
            return Ok(None);
        }
        let previewed = json!({"tool": call.name, "arguments": call.arguments});
        let answer = self.host.call((PREVIEW, &previewed), MAX_RESULT_BYTES, || false)?;
        Ok(answer.ok.then_some(answer.text))
    }

    /// What a call may do; `None` for a tool that does not exist.
    fn reach(&self, call: &ToolCall) -> Option<CallReach> {
        let Some(tool) = own_tool(call) else {
            return self.others.iter().find_map(|others| others.reach(call));
        };
        let subject = match call.arguments["command"].as_str() {
            Some(command) if call.name == "bash" => RuleSubject::Command(command.to_owned()),
            _ => RuleSubject::None,
        };
        // Unconfined tools that read are no less outside: they reach every file of the user.
        let looks = call.name == JOB && call.arguments["action"] != "stop";
        Some(CallReach { is_inside: self.is_confined, writes: tool.writes && !looks, subject })
    }

    /// What is wrong with the arguments of a call whose tool no grammar holds to its schema.
    fn fault(&self, call: &ToolCall) -> Option<String> {
        let tools = self.others.iter().find(|others| others.reach(call).is_some())?.tools();
        let tool = tools.into_iter().find(|tool| tool.name == call.name)?;
        let fault = schema_fault(&tool.parameters, &call.arguments)?;
        Some(format!("the arguments do not fit the schema of {}: {fault}", call.name))
    }

    fn call(&mut self, call: &ToolCall, user: &mut dyn AgentUser) -> Result<bool, AgentError> {
        let (tool, arguments) = (call.name.clone(), call.arguments.clone());
        let begun = Record::CallStarted { id: id(call).to_owned(), tool, arguments };
        self.session.begin_call(&begun)?;
        if own_tool(call).is_none_or(|tool| tool.writes) {
            self.session.sync()?;
        }
        user.show(AgentEvent::Call(call));
        let mut answer = self.answer_of(call, user)?;
        let others = self.open_calls().len().saturating_sub(1);
        let has_space = self.has_space(&answer.text, others);
        if !has_space {
            answer.text = other_tools::left_out(&self.host, answer.text);
        }
        let came = (id(call), &*answer.text, answer.ok);
        self.session.end_call(came, answer.changed.clone(), &self.host.kept_files())?;
        let (name, text) = (call.name.clone(), answer.text.clone());
        self.model.extend(vec![result_message(id(call).to_owned(), name, text)]);
        user.show(AgentEvent::Result(call, &answer));
        self.offer(id(call), &answer, user)?;
        Ok(has_space)
    }

    fn answer_of(
        &mut self,
        call: &ToolCall,
        user: &dyn AgentUser,
    ) -> Result<ToolAnswer, AgentError> {
        self.host.has_others = self.others.iter().any(|others| others.has_processes());
        let limits = self.limits;
        let is_cancelled = || user.is_interrupted() || !limits.is_in_time();
        let most = self.result_bytes();
        let others = self.others.iter_mut().find(|others| others.reach(call).is_some());
        match others {
            Some(others) if own_tool(call).is_none() => {
                let writes = others.reach(call).is_some_and(|reach| reach.writes);
                let is_guarded = writes || others.has_processes();
                let before = is_guarded.then(|| guard(&mut self.host, false)).transpose()?;
                let result = others.call(call, &is_cancelled);
                let after = is_guarded.then(|| guard(&mut self.host, true)).transpose()?;
                let mut answer = other_tools::answer(&self.host, result, most);
                for found in before.into_iter().chain(after) {
                    answer.text.push_str(&found.text);
                    answer.guarded.extend(found.guarded);
                }
                Ok(answer)
            }
            _ => Ok(self.host.call((&call.name, &call.arguments), most, is_cancelled)?),
        }
    }

    /// Asks about changes of guarded files that processes have made after the last call.
    pub(crate) fn offer_rest(&mut self, user: &mut dyn AgentUser) -> Result<(), AgentError> {
        self.host.has_others = self.others.iter().any(|others| others.has_processes());
        let answer = guard(&mut self.host, false)?;
        self.offer("", &answer, user)
    }

    /// Asks about changes of guarded files by the call `id`, which were undone. Shows what is not
    /// as the answer says.
    fn offer(
        &mut self,
        id: &str,
        answer: &ToolAnswer,
        user: &mut dyn AgentUser,
    ) -> Result<(), AgentError> {
        for report in &answer.guarded {
            let call = CallReach { is_inside: false, writes: true, subject: RuleSubject::None };
            let question = Question::Guarded(report);
            let reply = match self.policy.decide(&call) {
                Decision::Run => None,
                Decision::Refuse(why) => {
                    user.show(AgentEvent::Refused(&question, why));
                    Some(Reply::No(Some(why.to_owned())))
                }
                Decision::Ask => Some(user.ask(&question, self.limits.end)),
            };
            if let Some(reply) = &reply {
                self.session.add_reply(id, &question, reply)?;
            }
            if matches!(reply, Some(Reply::No(_))) {
                self.has_refused = true;
                if !report.undone {
                    user.show(AgentEvent::Refused(&question, NOT_UNDONE));
                }
            } else {
                let change = json!({"change": report.number});
                let made = self.host.call((ACCEPT, &change), MAX_RESULT_BYTES, || false)?;
                if !made.ok {
                    self.has_refused = true;
                    user.show(AgentEvent::Refused(&question, &made.text));
                }
            }
        }
        Ok(())
    }

    /// Most bytes of a result: an eighth of the context that is free.
    fn result_bytes(&self) -> usize {
        let free = self.model.context().saturating_sub(self.model.used());
        (free / 8 * BYTES_PER_TOKEN).min(MAX_RESULT_BYTES)
    }
}

/// The beginning of a text that repeats what the model wrote.
fn cut(mut text: String) -> String {
    if text.len() > MAX_FAULT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_FAULT_BYTES));
        text.push('…');
    }
    text
}

/// Has the tools look at guarded files, before a call that they do not carry out and after it.
fn guard(host: &mut HostProcess, is_after: bool) -> Result<ToolAnswer, HostError> {
    host.call((GUARD, &json!({"check": is_after})), MAX_RESULT_BYTES, || false)
}

/// The tool of the confined process that is called.
fn own_tool(call: &ToolCall) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == call.name)
}
