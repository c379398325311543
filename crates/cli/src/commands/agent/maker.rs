//! Agents of the command: all of them share one model, and each has tools and a session of its own.

use super::answering::Answering;
use super::args::Args;
use super::plan_notice;
use super::session::{OpenSession, SessionHold};
use super::tools::ToolArgs;
use crate::input::read_limited;
use crate::reasoning;
use crate::settings::McpSetting;
use agent::{
    Agent, AgentError, AgentUser, Confirm, FetchTool, HostProcess, OtherTools, Policy, Record,
    ToolFolders, WorkEnd, WorkLimits,
};
use anyhow::{Context, Result, bail};
use api::{AnswerOptions, ChatRequest, Message, Tool};
use engine::{EngineOptions, KvMemory};
use serde_json::Value;
use std::path::Path;
use std::time::Instant;
use text::GrammarSource;

/// What the model reads before all else.
const SYSTEM: &str = include_str!("system.txt");
/// Most bytes of a text that replaces it.
const MAX_SYSTEM: u64 = 1 << 20;
/// Most bytes of a file with a key.
const MAX_KEY: u64 = 1 << 16;
/// What makes agents, with the model that answers in all of them.
pub(super) struct AgentMaker<'a> {
    args: &'a Args,
    mcp: Option<&'a McpSetting>,
    answering: Answering,
}

/// An agent with what it holds while it works.
pub(super) struct MadeAgent {
    /// The agent.
    pub agent: Agent,
    /// Its session.
    pub session: SessionHold,
    /// How its tools are confined, except while it plans.
    pub tools: ToolArgs,
    /// The folders of its tools.
    folders: ToolFolders,
    /// The folder that they are in, which is removed in the end.
    _temporary: tempfile::TempDir,
}

impl<'a> AgentMaker<'a> {
    /// Loads the model, or finds it on its server. Where a session is kept, so are prefixes.
    ///
    /// # Errors
    ///
    /// If there is no such model.
    pub fn new(args: &'a Args, mcp: Option<&'a McpSetting>, is_kept: bool) -> Result<Self> {
        if let Some(url) = &args.url {
            let key = args.api_key_file.as_deref().map(|path| read_limited(path, MAX_KEY));
            let key = key.transpose()?.map(|key| key.trim().to_owned());
            let answering = Answering::at(url, key.as_deref(), args.source.name_on_server())?;
            return Ok(Self { args, mcp, answering });
        }
        let given = args.given.as_ref().map(|given| &given.source);
        let source = args.source.clone().out_of_folder(given)?;
        let source = if is_kept { source.keeping_prefixes() } else { source };
        // An editor has many sessions.
        let memory = if args.acp { KvMemory::Share } else { KvMemory::OneSequence };
        let loaded = source.load(EngineOptions::default(), memory)?;
        args.sampling.check(loaded.service.info().vocab_size)?;
        Ok(Self { args, mcp, answering: Answering::Local(Box::new(loaded)) })
    }

    /// The name of the model.
    pub fn model(&self) -> &str {
        self.answering.name()
    }

    /// Checks that answers of a model in this process can be held to a schema, and that those of a
    /// server can be checked.
    ///
    /// # Errors
    ///
    /// If no grammar comes of it, or it has a word that is not checked.
    pub fn check_schema(&self, schema: &Value) -> Result<()> {
        if let Answering::Local(loaded) = &self.answering {
            let source = GrammarSource::JsonSchema(schema.clone());
            loaded.service.matcher(&source).context("--output-schema")?;
        } else if let Some(word) = agent::unchecked_word(schema) {
            bail!("--output-schema: `{word}` of an answer of --url cannot be checked");
        }
        Ok(())
    }

    /// The agent of a session, with tools as `tools` says. Where its log was written with another
    /// model, template or tools, its messages are rendered anew. `is_cancelled` is asked while MCP
    /// servers start; the agent is made all the same, without servers that have not started.
    ///
    /// # Errors
    ///
    /// If the tools do not start, or the session cannot be written.
    pub fn make(
        &self,
        open: OpenSession,
        (tools, confirm): (&ToolArgs, Confirm),
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<MadeAgent> {
        let args = self.args;
        let temporary = tempfile::Builder::new().prefix("gannet-agent-").tempdir()?;
        let folders = ToolFolders::new(temporary.path())?;
        let mut host = tools.start(&folders)?;
        let opening = self.opening(&mut host, tools)?;
        let servers = tools.start_servers(self.mcp, &folders, is_cancelled)?;
        let fetch: Box<dyn OtherTools> = Box::new(FetchTool::default());
        let others: Vec<_> = std::iter::once(fetch).chain(servers).collect();
        let request = self.request(&others)?;
        self.answering.check_space(&request)?;
        let digest = self.answering.digest(&request);
        let has_tokens = open.has_tokens_of(&digest);
        let head = Record::head(self.model(), digest, tools.workspace()?);
        let model = self.answering.model(request, (&open, has_tokens))?;
        let is_new = open.resumed.is_none();
        let head = (!has_tokens).then_some(head);
        let (mut session, held) = open.begin(head, folders.before())?;
        if is_new {
            session.add_messages(model.messages())?;
        }
        let agent = Agent {
            model,
            host,
            others,
            session,
            opening,
            notice: String::new(),
            policy: Policy { confirm, rules: args.allow.clone(), is_plan: false },
            is_confined: tools.is_confined(),
            options: AnswerOptions { sampling: args.sampling.options(), ..Default::default() },
            limits: self.limits(),
            may_compact: true,
            has_refused: false,
        };
        let tools = tools.clone();
        Ok(MadeAgent { agent, session: held, tools, folders, _temporary: temporary })
    }

    /// The limits of the work on a request that begins now.
    pub fn limits(&self) -> WorkLimits {
        WorkLimits {
            answers: Some(self.args.max_turns),
            tokens: self.args.work_tokens.and_then(|most| most.try_into().ok()),
            end: self.args.timeout.map(|timeout| Instant::now() + timeout),
        }
    }

    /// What the first request begins with.
    fn opening(&self, host: &mut HostProcess, tools: &ToolArgs) -> Result<String> {
        let instructions = match self.args.no_instructions {
            true => None,
            false => host.instructions()?,
        };
        let instructions = instructions.map_or_else(String::new, |text| {
            format!("The project's instructions (AGENTS.md):\n{}\n\n", text.trim_end())
        });
        Ok(format!("{instructions}{}\n\n", tools.place()?))
    }

    /// Sets how much the model of `made` reasons from now on. Gives the tokens that are computed
    /// anew; `None` where the conversation continues from its tokens.
    ///
    /// # Errors
    ///
    /// If the model cannot, or the session cannot be written.
    pub fn set_effort(&self, made: &mut MadeAgent, effort: &str) -> Result<Option<usize>> {
        let mut request = self.request(&made.agent.others)?;
        request.template_kwargs = reasoning::of_effort(effort);
        let anew = made.agent.model.set_variables(request.template_kwargs.clone())?;
        if anew.is_some() {
            let digest = self.answering.digest(&request);
            let head = Record::head(self.model(), digest, made.tools.workspace()?);
            made.agent.session.add(&head)?;
        }
        Ok(anew)
    }

    /// What every prompt begins with.
    fn request(&self, others: &[Box<dyn OtherTools>]) -> Result<ChatRequest> {
        let args = self.args;
        let system = match &args.system {
            Some(path) => read_limited(path, MAX_SYSTEM)?,
            None => SYSTEM.trim_end().to_owned(),
        };
        let others = others.iter().flat_map(|others| others.tools());
        let held = |tool: Tool| {
            let strict = tool.strict || self.answering.can_hold(&tool);
            Tool { strict, ..tool }
        };
        Ok(ChatRequest {
            messages: vec![Message::system(system)],
            tools: agent::agent_tools().into_iter().chain(others.map(held)).collect(),
            template_kwargs: args.reasoning.kwargs(),
            sampling: args.sampling.options(),
            ..ChatRequest::default()
        })
    }

    /// Ends the model, and waits for what it still writes.
    pub fn finish(self) {
        self.answering.finish();
    }
}

impl MadeAgent {
    /// Works on a request, whose message says that the plan was begun or left, if none does.
    ///
    /// # Errors
    ///
    /// If the model, the tools or the session fail.
    pub fn work(&mut self, prompt: &str, user: &mut dyn AgentUser) -> Result<WorkEnd, AgentError> {
        let (messages, is_plan) = (self.agent.model.messages(), self.agent.policy.is_plan);
        self.agent.notice = plan_notice::notice(messages, is_plan).unwrap_or_default().to_owned();
        self.agent.work(prompt, user)
    }

    /// The folder in which the tools keep contents before changes.
    pub fn kept(&self) -> &Path {
        self.agent.host.kept()
    }

    /// How the tools are confined now, in words.
    pub fn sandbox(&self) -> &'static str {
        match self.agent.policy.is_plan {
            true => self.tools.in_plan().sandbox(),
            false => self.tools.sandbox(),
        }
    }

    /// Starts the tools anew, confined as `tools` says, and MCP servers with their next calls, if
    /// that is another sandbox; jobs end. While the model plans, they are so after the plan.
    ///
    /// # Errors
    ///
    /// If they do not start; then the ones before stay.
    pub fn restart_tools(&mut self, tools: &ToolArgs) -> Result<()> {
        let started = if self.agent.policy.is_plan { tools.in_plan() } else { tools.clone() };
        // One that has ended has nothing to leave.
        let _ = self.agent.host.leave();
        self.agent.host = started.start(&self.folders)?;
        started.confine(&mut self.agent.others);
        self.agent.is_confined = started.is_confined();
        self.tools = tools.clone();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::CallReach;
    use api::ToolCall;
    use clap::Parser;
    use serde_json::json;

    /// Tools with these schemas.
    #[derive(Debug)]
    struct SomeTools(Vec<Value>);

    impl OtherTools for SomeTools {
        fn tools(&self) -> Vec<Tool> {
            let tool = |(number, schema): (usize, &Value)| Tool {
                name: format!("s__{number}"),
                description: None,
                parameters: schema.clone(),
                strict: false,
                source: None,
            };
            self.0.iter().enumerate().map(tool).collect()
        }

        fn reach(&self, _: &ToolCall) -> Option<CallReach> {
            None
        }

        fn call(&mut self, _: &ToolCall, _: &dyn Fn() -> bool) -> (bool, String) {
            (false, String::new())
        }
    }

    #[test]
    fn other_tools_are_strict_where_a_grammar_takes_their_schemas() {
        let folder = tempfile::tempdir().unwrap();
        let model = tiny::unpack_below(Some(folder.path().to_owned()), |_, _| ()).unwrap();
        let words = ["gannet", "agent", "x", "--no-session", "-m", model.to_str().unwrap()];
        let [given, args] = [(); 2].map(|()| match crate::Cli::parse_from(words).command {
            crate::Command::Agent(args) => *args,
            other => panic!("{other:?}"),
        });
        let args = Args { given: Some(Box::new(given)), ..args };
        let maker = AgentMaker::new(&args, None, false).unwrap();
        let of = |member: Value| json!({"type": "object", "properties": {"a": member}});
        let schemas = vec![
            of(json!({"type": "string", "enum": ["x", "y"]})),
            of(json!({"type": "string", "pattern": "(?<=x)y"})),
        ];
        let others: Vec<Box<dyn OtherTools>> = vec![Box::new(SomeTools(schemas))];
        let request = maker.request(&others).unwrap();
        let is_strict =
            |name: &str| request.tools.iter().find(|it| it.name == name).unwrap().strict;
        assert_eq!([is_strict("s__0"), is_strict("s__1")], [true, false]);
        maker.finish();
    }
}
