//! A session of a plan with the built-in model: its agent and its user.

use crate::forced::{ForcedModel, PlannedAnswers, forced_tools};
use crate::plans::{PlanPlace, PlannedAct, answers};
use crate::scene::{Scene, first_messages};
use agent::{Agent, AgentEvent, AgentUser, Question, Reply, agent_tools};
use api::{Done, Service, TextEvent, Usage};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Most tokens of the reasoning of each answer.
const REASONING: usize = 6;

/// A user who looks, and writes as planned.
#[derive(Default)]
pub struct Watcher<'a> {
    /// The counts of the answers.
    pub usages: Vec<Usage>,
    /// Tokens that were rendered anew.
    pub rendered_anew: usize,
    /// What is written next.
    pub writes: Option<PlannedMessage>,
    /// The scene whose files are copied at each event.
    pub copied: Option<&'a Scene>,
    /// The copies.
    pub copies: Vec<FilesCopy>,
}

/// A message that is written once so many of the planned answers are left.
#[derive(Debug)]
pub struct PlannedMessage {
    pub to_come: PlannedAnswers,
    pub left: usize,
}

/// The files as they were when the session had so many records.
pub struct FilesCopy {
    pub records: usize,
    pub work: PathBuf,
    pub kept: PathBuf,
}

impl Watcher<'_> {
    /// Copies the files.
    pub fn copy(&mut self) {
        let Some(scene) = self.copied else { return };
        let folder = scene.folder.path().join(format!("copy-{}", self.copies.len()));
        let (work, kept) = (folder.join("work"), folder.join("kept"));
        copy_files(&scene.work(), &work);
        copy_files(&scene.kept(), &kept);
        let log = fs::read_to_string(scene.log()).unwrap_or_default();
        let records = log.lines().count();
        self.copies.push(FilesCopy { records, work, kept });
    }
}

impl AgentUser for Watcher<'_> {
    fn show(&mut self, event: AgentEvent<'_>) {
        match event {
            AgentEvent::Answer(TextEvent::Done(Done { usage, .. })) => self.usages.push(*usage),
            AgentEvent::Answer(_) => {}
            AgentEvent::Begun(start) => {
                self.rendered_anew += start.rendered_anew.unwrap_or_default();
                self.copy();
            }
            _ => self.copy(),
        }
    }

    fn ask(&mut self, _: &Question<'_>, _: Option<Instant>) -> Reply {
        Reply::No(None)
    }

    fn is_interrupted(&self) -> bool {
        false
    }

    fn written(&mut self) -> Vec<String> {
        let is_due = |it: &mut PlannedMessage| it.to_come.to_come.borrow().len() == it.left;
        let message = self.writes.take_if(is_due);
        message.map(|_| "And keep it short.".to_owned()).into_iter().collect()
    }
}

/// Copies the files of a folder without folders, if there is one.
pub fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).into_iter().flatten() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// A session that continues with its plan, as a new process does.
pub struct ForcedSession<'a> {
    plan: &'a [PlannedAct],
    place: PlanPlace,
    /// The agent.
    pub agent: Agent,
    /// The answers to come.
    pub answers: PlannedAnswers,
}

impl<'a> ForcedSession<'a> {
    /// The session of `scene` with the model of `service`.
    pub fn open(scene: &Scene, plan: &'a [PlannedAct], service: &Service) -> Self {
        let place = PlanPlace::of(plan, &scene.records());
        let (session, resumed, folders) = scene.open();
        let (messages, turns) =
            resumed.map_or_else(|| (first_messages(), Vec::new()), |it| (it.messages, it.turns));
        let tools = forced_tools(agent_tools(), &answers(plan));
        let request = ForcedModel::request(messages, tools, REASONING);
        let transcript = service.resume(request, turns).unwrap();
        let answers = PlannedAnswers::default();
        let model = ForcedModel::new(service.clone(), transcript, answers.clone());
        let agent = scene.agent_of(Box::new(model), session, folders);
        Self { plan, place, agent, answers }
    }

    /// Does the rest of the plan, or at most so many answers of it.
    pub fn work(&mut self, user: &mut Watcher<'_>, most: Option<usize>) {
        self.agent.limits.answers = most;
        let Self { plan, place, agent, answers } = self;
        place.carry_on(plan, (agent, answers), user);
    }
}
