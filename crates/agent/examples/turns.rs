//! What the turns of an agent compute and how long they take, with a model of this process whose
//! calls are forced. `tests/agents/real/bars.py` makes a model and plans, and compares with other
//! agents.
//!
//! ```text
//! cargo run --release -p gannet-agent --example turns -- decoding MODEL RUNS
//! cargo run --release -p gannet-agent --example turns -- session MODEL FOLDER ANSWERS
//! ```
//!
//! `decoding` decodes the same text with and without the grammar of strict tools, in turn, and
//! prints the tokens a second of each run.
//!
//! `session` carries out FOLDER/plan.json in FOLDER/work and prints a line for each answer: its
//! tokens, the time to its first token, that of the whole, and the time since the end of the answer
//! before. It ends after so many answers and continues where it ended, with what is kept in FOLDER
//! (`log.jsonl`, `files`, `kv`):
//!
//! ```json
//! {"system": "…", "reasoning": 0, "template": null,
//!  "requests": [{"text": "…", "answers": [{"tool": "read", "arguments": {}}, {"say": "Done."}]}]}
//! ```

#[path = "../tests/work/forced.rs"]
mod forced;
#[path = "../tests/work/tool_process.rs"]
mod tool_process;

use agent::{
    Agent, AgentEvent, AgentSession, AgentUser, Confirm, FetchTool, OtherTools, Policy, Question,
    Record, Reply, ResumedSession, Sandbox, SessionLog, ToolFolders, WorkEnd, WorkLimits,
    agent_tools,
};
use api::{
    AnswerOptions, ChatRequest, Done, Message, SamplingOptions, TextEvent, ToolChoice, Usage,
};
use forced::{ForcedModel, PlannedAnswer, PlannedAnswers, forced_tools};
use gannet::{Builder, Engine, KvDir};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Tokens that are decoded with and without a grammar.
const DECODED: usize = 128;
const CONTEXT: usize = 32_768;
const MAX_KEPT: u64 = 16 << 30;
/// Time for what is still written to disk.
const END: Duration = Duration::from_secs(120);

/// What is done.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionPlan {
    system: String,
    /// Most tokens of reasoning, where the template opens it.
    reasoning: usize,
    template: Option<PathBuf>,
    requests: Vec<PlannedRequest>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlannedRequest {
    text: String,
    answers: Vec<AnswerJson>,
}

#[derive(Clone, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum AnswerJson {
    Call { tool: String, arguments: Value },
    Say { say: String },
}

impl From<AnswerJson> for PlannedAnswer {
    fn from(answer: AnswerJson) -> Self {
        match answer {
            AnswerJson::Call { tool, arguments } => Self::Call(tool, arguments),
            AnswerJson::Say { say } => Self::Say(say),
        }
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let args: Vec<&str> = args[1..].iter().map(String::as_str).collect();
    match args[..] {
        [command, settings, ref program @ ..] if command == agent::TOOL_HOST => {
            let program: Vec<_> = program.iter().map(Into::into).collect();
            return ExitCode::from(agent::serve_tools(settings, &program));
        }
        ["decoding", model, runs] => decoding(model, runs.parse().expect("a number of runs")),
        ["session", model, folder, answers] => {
            session(model, Path::new(folder), answers.parse().expect("a number of answers"));
        }
        _ => say(&json!("usage: turns decoding MODEL RUNS | turns session MODEL FOLDER ANSWERS")),
    }
    ExitCode::SUCCESS
}

fn say(value: &Value) {
    let mut output = stdout();
    writeln!(output, "{value}").unwrap();
}

fn builder() -> Builder {
    Engine::builder().parallel(1).context(CONTEXT)
}

fn decoding(model: &str, runs: usize) {
    let engine = builder().load(model).unwrap();
    let request = ChatRequest {
        messages: vec![Message::user("Tell me a story.")],
        tools: agent_tools(),
        ..ChatRequest::default()
    };
    let transcript = engine.service().begin(request).unwrap();
    let rate = |tool_choice: ToolChoice| {
        let sampling = SamplingOptions {
            temperature: Some(0.0),
            max_tokens: Some(DECODED),
            ignore_eos: true,
            ..SamplingOptions::default()
        };
        let options = AnswerOptions { sampling, tool_choice, ..AnswerOptions::default() };
        let mut transcript = transcript.clone();
        let mut stream = engine.service().answer(&mut transcript, &options).unwrap().stream;
        let done = std::iter::from_fn(|| stream.next_blocking()).find_map(|event| match event {
            TextEvent::Done(done) => Some(done),
            _ => None,
        });
        let Done { usage, timings, .. } = done.expect("an answer that ends");
        assert_eq!(usage.completion_tokens, DECODED);
        drop(stream);
        let tokens = transcript.settle().and_then(|it| it.tokens).expect("tokens").sampled;
        // The first token comes from the computation of the prompt.
        (tokens, (DECODED - 1) as f64 / timings.decode_s)
    };
    // Once for the caches.
    rate(ToolChoice::None);
    for _ in 0..runs {
        let ((plain, without), (strict, with)) = (rate(ToolChoice::None), rate(ToolChoice::Auto));
        say(&json!({"without": without, "with": with, "same": plain == strict}));
    }
}

/// A user who writes down when answers end.
struct Clock {
    ends: Vec<(Instant, Done)>,
    rendered_anew: usize,
}

impl AgentUser for Clock {
    fn show(&mut self, event: AgentEvent<'_>) {
        match event {
            AgentEvent::Answer(TextEvent::Done(done)) => {
                self.ends.push((Instant::now(), done.clone()));
            }
            AgentEvent::Begun(start) => {
                self.rendered_anew += start.rendered_anew.unwrap_or_default();
            }
            _ => {}
        }
    }

    fn ask(&mut self, _: &Question<'_>, _: Option<Instant>) -> Reply {
        Reply::No(None)
    }

    fn is_interrupted(&self) -> bool {
        false
    }

    fn written(&mut self) -> Vec<String> {
        Vec::new()
    }
}

fn session(model: &str, folder: &Path, most: usize) {
    let folder = folder.canonicalize().unwrap();
    let plan = std::fs::read(folder.join("plan.json")).unwrap();
    let plan: SessionPlan = serde_json::from_slice(&plan).unwrap();
    let builder = plan.template.iter().fold(builder(), |it, path| it.chat_template(path));
    let engine = builder.kv_dir(kv_dir(&folder)).load(model).unwrap();
    let answers = PlannedAnswers::default();
    let temporary = tempfile::tempdir().unwrap();
    let folders = ToolFolders::new(temporary.path()).unwrap();
    let (mut agent, made) = agent(&engine, &folder, &plan, (&answers, &folders));
    agent.limits.answers = Some(most);
    let mut clock = Clock { ends: Vec::new(), rendered_anew: 0 };
    carry_out(&plan, made, (&mut agent, &answers), &mut clock);
    drop(agent);
    print(&answers, &clock);
    assert!(engine.finish(END), "not all prefixes are stored");
}

/// As `gannet agent` keeps prefixes.
fn kv_dir(folder: &Path) -> KvDir {
    let mut kept = KvDir::new(folder.join("kv"), MAX_KEPT);
    kept.digests = Some(folder.join("digests"));
    kept
}

/// The agent of a session that begins or continues, and the answers that it has.
fn agent(
    engine: &Engine,
    folder: &Path,
    plan: &SessionPlan,
    (answers, folders): (&PlannedAnswers, &ToolFolders),
) -> (Agent, usize) {
    let others: Vec<Box<dyn OtherTools>> = vec![Box::new(FetchTool::default())];
    let tools = agent_tools().into_iter().chain(others[0].tools()).collect();
    let all = plan.requests.iter().flat_map(|it| it.answers.iter().cloned());
    let tools = forced_tools(tools, &all.map(PlannedAnswer::from).collect::<Vec<_>>());
    let (mut log, records) = SessionLog::open(&folder.join("log.jsonl")).unwrap();
    let is_answer = |it: &&Record| matches!(it, Record::Message { tokens: Some(_), .. });
    let made = records.iter().filter(is_answer).count();
    let resumed = ResumedSession::of(records);
    if resumed.is_none() {
        log.add(&Record::head("forced", "0".into(), folder.join("work"))).unwrap();
    }
    let mut session = AgentSession::new(Some(log), folder.join("files"));
    let first = vec![Message::system(plan.system.clone())];
    let (messages, turns) = match resumed {
        Some(resumed) => {
            session = session.resumed(&resumed);
            (resumed.messages, resumed.turns)
        }
        None => {
            session.add_messages(&first).unwrap();
            (first, Vec::new())
        }
    };
    let request = ForcedModel::request(messages, tools, plan.reasoning);
    let transcript = engine.service().resume(request, turns).unwrap();
    let model = ForcedModel::new(engine.service().clone(), transcript, answers.clone());
    let host = tool_process::tool_process(&folder.join("work"), folders, Sandbox::Workspace);
    let agent = Agent {
        model: Box::new(model),
        host,
        others,
        session,
        opening: String::new(),
        notice: String::new(),
        policy: Policy { confirm: Confirm::Refuse, ..Policy::default() },
        is_confined: true,
        options: AnswerOptions::default(),
        limits: WorkLimits::default(),
        may_compact: false,
        has_refused: false,
    };
    (agent, made)
}

/// Carries out what is left of a plan after `made` answers.
fn carry_out(
    plan: &SessionPlan,
    mut made: usize,
    (agent, answers): (&mut Agent, &PlannedAnswers),
    clock: &mut Clock,
) {
    for PlannedRequest { text, answers: all } in &plan.requests {
        let here = made.min(all.len());
        made -= here;
        let rest = all[here..].iter().cloned().map(PlannedAnswer::from);
        answers.to_come.borrow_mut().extend(rest);
        let end = match here {
            0 => agent.work(text, clock),
            here if here < all.len() => agent.go_on(clock),
            _ => continue,
        };
        if end.unwrap() == WorkEnd::Limit {
            return;
        }
    }
}

fn print(answers: &PlannedAnswers, clock: &Clock) {
    let mut before: Option<Instant> = None;
    for (asked, (end, Done { usage, timings, .. })) in
        answers.asked.borrow().iter().zip(&clock.ends)
    {
        let Usage { prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, .. } = usage;
        let whole = (*end - *asked).as_secs_f64();
        say(&json!({
            "prompt": prompt_tokens, "cached": cached_tokens, "completion": completion_tokens,
            "reasoning": reasoning_tokens, "rendered_anew": clock.rendered_anew,
            "first_token_s": whole - timings.decode_s, "answer_s": whole,
            "between_s": before.map(|before| (*asked - before).as_secs_f64()),
        }));
        before = Some(*end);
    }
}
