//! Arranges the messages of a conversation so that its template takes them.
//!
//! System messages go where the template takes them: those at the start are joined, a later one
//! becomes a paragraph of the user's next message, or a message of the user. Messages of one role
//! are joined where the template wants user and assistant to take turns. Calls of one message
//! become messages of their own, each before its result, where the template takes one call at a
//! time.
//!
//! Invariant: what a message becomes does not depend on messages after the next answer, so that the
//! prompt of a turn begins with the prompts of the turns before it.

use crate::message::{Message, Part, Role, Tool};
use crate::message_rules::{MessageRules, SystemPlace};
use crate::tool_prompt::{description, response};
use std::borrow::Cow;
use std::collections::HashMap;
use text::ToolFormat;

/// How the messages of a request are arranged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrangement<'a> {
    pub rules: &'a MessageRules,
    /// The format of calls, if the template has no place for calls.
    pub calls_as_text: bool,
    /// The template gets tools.
    pub tools: bool,
    /// Tools that the template does not render, with the format of their calls, and whether several
    /// calls may be made at once.
    pub described: Option<(&'a [Tool], &'static ToolFormat, bool)>,
}

impl Arrangement<'_> {
    /// The messages as the template takes them. An assistant's message with calls keeps them.
    pub fn of<'m>(&self, messages: &'m [Message]) -> Cow<'m, [Message]> {
        let as_they_are = self.rules.takes_all() || !self.changes(messages);
        if self.described.is_none() && !self.calls_as_text && as_they_are {
            return Cow::Borrowed(messages);
        }
        let is_system = |message: &&Message| message.role == Role::System;
        let start = messages.iter().take_while(is_system).count();
        let list = self.start(&messages[..start]);
        let instructed = !list.is_empty();
        let mut arranged = Arranged { arrangement: self, instructed, list, later: Vec::new() };
        messages[start..].iter().for_each(|message| arranged.add(message));
        arranged.end();
        match self.rules.calls_together || self.calls_as_text {
            true => Cow::Owned(arranged.list),
            false => Cow::Owned(one_call_each(arranged.list)),
        }
    }

    /// Whether the rules may change anything: a quick look that spares most conversations the copy.
    fn changes(&self, messages: &[Message]) -> bool {
        let rules = self.rules;
        let is = |at: usize, role: Role| messages.get(at).is_some_and(|it| it.role == role);
        let systems = messages.iter().filter(|it| it.role == Role::System).count();
        let start = messages.iter().take_while(|it| it.role == Role::System).count();
        let placed = match rules.system {
            SystemPlace::Anywhere => true,
            SystemPlace::Start => systems == start,
            SystemPlace::Once => systems == start && start <= 1,
            SystemPlace::Nowhere => systems == 0,
        };
        let follows = |at: usize, one: Role, next: Role| is(at, one) && is(at + 1, next);
        let any = |one: &Role, next: &Role| {
            (0..messages.len()).any(|at| follows(at, one.clone(), next.clone()))
        };
        !placed
            || (!rules.users_in_row && any(&Role::User, &Role::User))
            || (!rules.answers_in_row && any(&Role::Assistant, &Role::Assistant))
            || (!rules.answer_first && is(start, Role::Assistant))
            || (!self.system_alone() && !messages.iter().any(|it| it.role == Role::User))
            || (!rules.user_after_result && any(&Role::Tool, &Role::User))
            || (!rules.calls_together && messages.iter().any(|it| it.calls.len() > 1))
    }

    fn system_alone(&self) -> bool {
        let rules = self.rules;
        if self.tools { rules.system_alone_with_tools } else { rules.system_alone }
    }

    /// The system messages at the start.
    fn start(&self, given: &[Message]) -> Vec<Message> {
        let mut list = given.to_vec();
        if let Some((tools, format, parallel)) = self.described {
            let tools = Message::system(description(tools, format, parallel, self.calls_as_text));
            match list.last_mut() {
                Some(last) => join(last, tools, PARAGRAPH),
                None => list.push(tools),
            }
        }
        if matches!(self.rules.system, SystemPlace::Once | SystemPlace::Nowhere) {
            let rest = list.split_off(list.len().min(1));
            rest.into_iter().for_each(|message| join(&mut list[0], message, PARAGRAPH));
        }
        if self.rules.system == SystemPlace::Nowhere {
            list.iter_mut().for_each(|message| message.role = Role::User);
        }
        list
    }
}

/// Text between paragraphs of a message, and between results of calls.
const PARAGRAPH: &str = "\n\n";
const LINE: &str = "\n";

/// The messages so far.
struct Arranged<'a> {
    arrangement: &'a Arrangement<'a>,
    /// The conversation starts with system messages.
    instructed: bool,
    list: Vec<Message>,
    /// Texts of system messages that wait for the next message.
    later: Vec<String>,
}

impl Arranged<'_> {
    fn add(&mut self, message: &Message) {
        let rules = self.arrangement.rules;
        match message.role {
            Role::System if rules.system == SystemPlace::Anywhere => {
                self.list.push(message.clone());
            }
            Role::System => self.later.extend(message.text().filter(|text| !text.is_empty())),
            // Results follow their calls.
            Role::Tool if self.arrangement.calls_as_text => self.result(response(message)),
            Role::Tool => self.list.push(message.clone()),
            Role::User => {
                let mut texts = self.later();
                texts.extend(message.text());
                let content = vec![Part::Text(texts.join(PARAGRAPH))];
                self.user(Message { content, ..message.clone() });
            }
            Role::Assistant => {
                self.flush();
                self.answer(message.clone());
            }
            Role::Other(_) => {
                self.flush();
                self.list.push(message.clone());
            }
        }
    }

    fn end(&mut self) {
        self.flush();
        let no_user = || !self.list.iter().any(|message| message.role == Role::User);
        if !self.arrangement.system_alone() && no_user() {
            self.start_with_user();
        }
    }

    /// The system messages that wait, as marked paragraphs.
    fn later(&mut self) -> Vec<String> {
        let texts = std::mem::take(&mut self.later);
        texts.into_iter().map(|text| format!("<system>\n{text}\n</system>")).collect()
    }

    /// Adds the system messages that wait as a message of the user.
    fn flush(&mut self) {
        if !self.later.is_empty() {
            let texts = self.later();
            self.user(Message::user(texts.join(PARAGRAPH)));
        }
    }

    /// Adds the result of a call. Results that follow each other are one message.
    fn result(&mut self, result: Message) {
        let answers_call = |last: &Message| !last.calls.is_empty();
        match self.list.last_mut() {
            Some(last) if last.role == Role::User => join(last, result, LINE),
            Some(last) if answers_call(last) => self.list.push(result),
            _ => self.user(result),
        }
    }

    fn user(&mut self, message: Message) {
        let rules = self.arrangement.rules;
        // The system messages at the start are part of the first user message.
        let instructs = rules.system == SystemPlace::Nowhere && self.instructed;
        let after_system = instructs && self.list.len() == 1;
        match self.list.last_mut() {
            Some(last) if last.role == Role::User && (!rules.users_in_row || after_system) => {
                join(last, message, PARAGRAPH);
            }
            Some(last) if last.role == Role::Tool && !rules.user_after_result => {
                self.list.extend([Message::assistant(""), message]);
            }
            _ => self.list.push(message),
        }
    }

    fn answer(&mut self, message: Message) {
        let rules = self.arrangement.rules;
        let before = self.list.iter().any(|message| message.role != Role::System);
        if !rules.answer_first && !before {
            self.start_with_user();
        }
        match self.list.last_mut() {
            Some(last)
                if last.role == Role::Assistant
                    && last.calls.is_empty()
                    && !rules.answers_in_row =>
            {
                last.calls.clone_from(&message.calls);
                last.reasoning = last.reasoning.take().or_else(|| message.reasoning.clone());
                join(last, message, PARAGRAPH);
            }
            _ => self.list.push(message),
        }
    }

    /// Has the conversation start with a user message: the last of the system messages, or an empty
    /// one.
    fn start_with_user(&mut self) {
        match self.list.last_mut().filter(|last| last.role == Role::System) {
            Some(last) => last.role = Role::User,
            None => self.list.push(Message::user("")),
        }
    }
}

/// Adds the text of `more` to a message.
fn join(message: &mut Message, more: Message, between: &str) {
    let texts = [message.text(), more.text()].into_iter().flatten();
    let texts: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
    message.content = vec![Part::Text(texts.join(between))];
}

/// Gives each call a message of its own, with its results after it: those with its id, or, without
/// an id, the one in its place. The text and the reasoning stand before the first call.
fn one_call_each(messages: Vec<Message>) -> Vec<Message> {
    let mut split = Vec::with_capacity(messages.len());
    let mut messages = messages.into_iter().peekable();
    while let Some(mut message) = messages.next() {
        let calls = std::mem::take(&mut message.calls);
        if calls.len() < 2 {
            split.push(Message { calls, ..message });
            continue;
        }
        let places: HashMap<Option<String>, usize> =
            calls.iter().map(|call| call.id.clone()).zip(0..).collect();
        let mut answered: Vec<(Message, Vec<Message>)> = Vec::with_capacity(calls.len());
        for call in calls {
            let message = std::mem::replace(&mut message, Message::new("assistant", ""));
            answered.push((Message { calls: vec![call], ..message }, Vec::new()));
        }
        let last = answered.len() - 1;
        let is_result = |next: &Message| next.role == Role::Tool;
        for at in 0.. {
            let Some(result) = messages.next_if(is_result) else { break };
            let place = result.call_id.as_ref().and_then(|_| places.get(&result.call_id));
            answered[place.copied().unwrap_or(at).min(last)].1.push(result);
        }
        for (call, results) in answered {
            split.push(call);
            split.extend(results);
        }
    }
    split
}
