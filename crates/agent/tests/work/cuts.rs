//! Sessions that were cut off after any of their records.

use crate::Test;
use crate::forced_session::{FilesCopy, ForcedSession, Watcher, copy_files};
use crate::plans::{PlannedAct, make_files, plan};
use crate::scene::Scene;
use crate::tiny_model;
use agent::{LoggedTokens, Record};
use api::Service;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

pub const TESTS: &[Test] =
    &[("a_session_cut_after_any_record_continues_with_the_same_tokens", cut_anywhere)];

/// Sessions, with other plans, which have more than two hundred places to cut in all.
const SESSIONS: u64 = 5;

/// A session that came to the end of its plan.
struct WholeSession<'a> {
    scene: Scene,
    plan: &'a [PlannedAct],
    records: Vec<Record>,
    copies: Vec<FilesCopy>,
}

impl<'a> WholeSession<'a> {
    fn new(plan: &'a [PlannedAct], service: &Service) -> Self {
        let scene = Scene::new(Vec::new());
        make_files(&scene.work());
        let mut watcher = Watcher { copied: Some(&scene), ..Watcher::default() };
        watcher.copy();
        ForcedSession::open(&scene, plan, service).work(&mut watcher, None);
        let copies = watcher.copies;
        let records = scene.records();
        Self { scene, plan, records, copies }
    }

    /// Cuts the session off after so many records, with the files as they were then and, where
    /// the record after them followed an effect, as they were after it. Returns the sessions that
    /// continued.
    fn cut(&self, records: usize, service: &Service) -> usize {
        let before = self.copies.iter().rfind(|it| it.records <= records);
        let acted = match (self.records.get(records - 1), self.records.get(records)) {
            (Some(Record::CallStarted { .. }), _) | (_, Some(Record::Rewind { .. })) => {
                self.copies.iter().find(|it| it.records == records + 1)
            }
            _ => None,
        };
        let copies: Vec<_> = before.into_iter().chain(acted).collect();
        copies.iter().for_each(|files| self.continue_with(records, files, service));
        copies.len()
    }

    fn continue_with(&self, records: usize, files: &FilesCopy, service: &Service) {
        let scene = Scene::new(Vec::new());
        copy_files(&files.work, &scene.work());
        copy_files(&files.kept, &scene.kept());
        let log = fs::read_to_string(self.scene.log()).unwrap();
        let log: Vec<&str> = log.split_inclusive('\n').take(records).collect();
        fs::write(scene.log(), log.concat()).unwrap();
        ForcedSession::open(&scene, self.plan, service).work(&mut Watcher::default(), None);
        let found = scene.records();
        let ran = log_lines(&scene.work());
        assert!(ran.values().all(|times| *times == 1), "{records}: {ran:?}");
        let [made, expected] = [&found, &self.records].map(|it| tokens(it));
        if !matches!(self.records[records - 1], Record::CallStarted { .. }) {
            assert!(made == expected, "{records}: {found:#?}");
            assert_eq!(files_of(&scene), files_of(&self.scene), "{records}");
            return;
        }
        let same = tokens(&self.records[..records]).len();
        assert_eq!(made[..same], expected[..same], "{records}");
        assert_eq!(calls(&found), calls(&self.records), "{records}");
        let interrupted = "interrupted, it is not known how far it came";
        let is_interrupted = |it: &&Record| matches!(it, Record::Message { message, .. } if message["content"] == interrupted);
        assert_eq!(found.iter().filter(is_interrupted).count(), 1, "{records}");
    }
}

/// How often each line is in the file that commands write to.
fn log_lines(work: &Path) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    let log = fs::read_to_string(work.join("log")).unwrap_or_default();
    for line in log.lines() {
        *lines.entry(line.to_owned()).or_default() += 1;
    }
    lines
}

/// The tokens of all answers.
fn tokens(records: &[Record]) -> Vec<&LoggedTokens> {
    let tokens = records.iter().filter_map(|record| match record {
        Record::Message { tokens, .. } => tokens.as_ref(),
        _ => None,
    });
    tokens.collect()
}

/// The tools and arguments of all calls that were made.
fn calls(records: &[Record]) -> Vec<String> {
    let calls = records.iter().filter_map(|record| match record {
        Record::Message { message, .. } => message["tool_calls"].as_array(),
        _ => None,
    });
    calls.flatten().map(|call| call["function"].to_string()).collect()
}

/// The names and contents of the files of a scene.
fn files_of(scene: &Scene) -> BTreeMap<String, String> {
    let files = fs::read_dir(scene.work()).unwrap().map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let text = scene.read(&name);
        (name, text)
    });
    files.collect()
}

fn cut_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let engine = tiny_model::load(folder.path(), |it| it);
    let mut cuts = 0;
    for seed in 0..SESSIONS {
        let plan = plan(seed, &[2, 3, 3]);
        let whole = WholeSession::new(&plan, engine.service());
        for records in 1..whole.records.len() {
            cuts += whole.cut(records, engine.service());
        }
    }
    assert!(cuts > 200, "{cuts}");
}
