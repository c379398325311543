//! Profiles: how often tokens have chosen each expert of a model in earlier runs, in a file of the
//! user's cache folder.
//!
//! Invariant: a profile decides which experts are read ahead, and nothing else; one that cannot be
//! used is as good as none.

use crate::observe::routes::RouteHeader;
use backend::ExpertUse;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Version of the format.
const VERSION: u32 = 1;
/// Most bytes of a file.
const MAX_BYTES: u64 = 32 << 20;
/// Most uses of an expert.
const MAX_COUNT: f64 = 1e15;
/// The weight of the counts of earlier runs against those of a new one.
const EARLIER: f64 = 0.5;

/// Where profiles are, and what they are used for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProfileUse {
    /// The folder of all profiles.
    pub folder: PathBuf,
    /// Whether experts are read ahead at the start.
    pub preload: bool,
    /// Whether the counts of this run are merged with earlier ones at the end.
    pub record: bool,
}

impl ProfileUse {
    /// Profiles in `folder` that are used at the start and merged with this run at the end.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), preload: true, record: true }
    }
}

/// How often tokens have chosen each expert.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExpertProfile {
    /// Version of the format.
    pub gannet_experts: u32,
    /// Digest of the checkpoint.
    pub checkpoint: String,
    /// Name of the model.
    pub model: String,
    /// Numbers of the layers that have experts.
    pub layers: Vec<u32>,
    /// Experts that a token chooses in a layer.
    pub chosen: u32,
    /// Uses of each expert `[layers][experts]`; those of earlier runs count half as much with every
    /// run.
    pub counts: Vec<Vec<f64>>,
}

impl ExpertProfile {
    /// A profile of no uses.
    pub fn new(header: &RouteHeader) -> Self {
        let RouteHeader { checkpoint, model, layers, experts, chosen, .. } = header;
        Self {
            gannet_experts: VERSION,
            checkpoint: checkpoint.clone(),
            model: model.clone(),
            layers: layers.clone(),
            chosen: *chosen,
            counts: vec![vec![0.0; *experts as usize]; layers.len()],
        }
    }

    /// The file of the profile of the model with this identity.
    pub fn path(folder: &Path, identity: &str) -> PathBuf {
        folder.join(format!("{identity}.json"))
    }

    /// Reads a profile.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is no profile, with the file and what is wrong.
    pub fn read(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let wrong = |problem: String| format!("{name}: {problem}");
        let cannot = |error: std::io::Error| format!("cannot read {name}: {error}");
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(cannot)?;
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(cannot)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(wrong(format!("expected at most {MAX_BYTES} bytes, found more")));
        }
        let profile: Self = serde_json::from_slice(&bytes)
            .map_err(|error| wrong(format!("expected a profile of experts: {error}")))?;
        profile.check().map_err(wrong)?;
        Ok(profile)
    }

    fn check(&self) -> Result<(), String> {
        let Self { gannet_experts, layers, counts, chosen, .. } = self;
        if *gannet_experts != VERSION {
            return Err(format!("gannet_experts: expected {VERSION}, found {gannet_experts}"));
        }
        if counts.len() != layers.len() {
            let (layers, found) = (layers.len(), counts.len());
            return Err(format!("counts: expected {layers} layers, found {found}"));
        }
        let experts = counts.first().map_or(0, Vec::len);
        if let Some(other) = counts.iter().find(|counts| counts.len() != experts) {
            return Err(format!("counts: expected {experts} experts, found {}", other.len()));
        }
        if *chosen == 0 || *chosen as usize > experts {
            return Err(format!("chosen: expected 1 to {experts}, found {chosen}"));
        }
        let is_count = |count: &&f64| !(0.0..=MAX_COUNT).contains(*count);
        match counts.iter().flatten().find(is_count) {
            None => Ok(()),
            Some(count) => Err(format!("counts: expected 0 to {MAX_COUNT:e}, found {count}")),
        }
    }

    /// Checks that it is the profile of the model with this identity.
    ///
    /// # Errors
    ///
    /// If it is another model's, with both identities.
    pub fn check_of(&self, identity: &str) -> Result<(), String> {
        let Self { checkpoint, model, .. } = self;
        match checkpoint == identity {
            true => Ok(()),
            false => Err(format!(
                "expected the profile of a model with identity {identity}, found that of {model} \
                 with {checkpoint}"
            )),
        }
    }

    /// The counts of a rank's layers, none of layers that it lacks; `None` if it has other experts.
    pub(crate) fn of(&self, header: &RouteHeader) -> Option<Self> {
        let mut own = Self::new(header);
        self.has_experts_of(&own).then(|| {
            own.add(self, 0..usize::MAX, 1.0);
            own
        })
    }

    /// Whether it has as many experts in a layer, and as many are chosen.
    fn has_experts_of(&self, other: &Self) -> bool {
        let experts = |it: &Self| it.counts.first().map(Vec::len);
        (self.chosen, experts(self)) == (other.chosen, experts(other))
    }

    /// Adds the counts of `other`, where both have a layer: those of `experts` by `factor`.
    fn add(&mut self, other: &Self, experts: Range<usize>, factor: f64) {
        for (layer, counts) in self.layers.iter().zip(&mut self.counts) {
            let Some(place) = other.layers.iter().position(|it| it == layer) else { continue };
            for (expert, (count, more)) in counts.iter_mut().zip(&other.counts[place]).enumerate() {
                let factor = if experts.contains(&expert) { factor } else { 1.0 };
                *count = (*count + factor * more).min(MAX_COUNT);
            }
        }
    }

    /// Takes over the layers of `other` that this one lacks, in ascending order.
    fn add_layers(&mut self, other: Self) {
        let own =
            std::mem::take(&mut self.layers).into_iter().zip(std::mem::take(&mut self.counts));
        let mut all: BTreeMap<u32, Vec<f64>> = other.layers.into_iter().zip(other.counts).collect();
        all.extend(own);
        (self.layers, self.counts) = all.into_iter().unzip();
    }

    /// Counts uses.
    pub(crate) fn count(&mut self, uses: &ExpertUse) {
        self.counts[uses.layer as usize][uses.expert as usize] += f64::from(uses.counted);
    }

    /// Number of tokens that were counted.
    pub fn tokens(&self) -> f64 {
        let uses: f64 = self.counts.iter().flatten().sum();
        uses / (f64::from(self.chosen) * self.layers.len().max(1) as f64)
    }

    /// The share of tokens that chose each expert, `[layers][experts]`.
    pub fn shares(&self) -> Vec<Vec<f32>> {
        let of_layer = |counts: &Vec<f64>| {
            let tokens = counts.iter().sum::<f64>() / f64::from(self.chosen);
            let share = |count: &f64| if tokens > 0.0 { (count / tokens).min(1.0) } else { 0.0 };
            counts.iter().map(|count| share(count) as f32).collect()
        };
        self.counts.iter().map(of_layer).collect()
    }

    /// Adds the counts of earlier runs, which are worth half, in the file at `path`, and writes the
    /// sum there. Other ranks do the same, also at this time: counts of layers that this profile
    /// lacks, and of experts that are not `own`, stay as they are. A file that is no profile of
    /// this model is replaced.
    ///
    /// # Errors
    ///
    /// If the file cannot be written, with its name.
    pub(crate) fn merge_into(mut self, path: &Path, own: Range<usize>) -> Result<(), String> {
        if self.counts.iter().flatten().all(|count| *count == 0.0) {
            return Ok(());
        }
        let folder = path.parent().unwrap_or(Path::new("."));
        let locked = || {
            fs::create_dir_all(folder)?;
            let folder = File::open(folder)?;
            folder.lock().map(|()| folder)
        };
        let _locked =
            locked().map_err(|error| format!("cannot lock {}: {error}", folder.display()))?;
        let earlier = Self::read(path).ok().filter(|earlier| {
            earlier.checkpoint == self.checkpoint && earlier.has_experts_of(&self)
        });
        if let Some(earlier) = earlier {
            self.add(&earlier, own, EARLIER);
            self.add_layers(earlier);
        }
        self.write(path)
    }

    /// Writes the profile, so that readers see the whole file or the one before.
    ///
    /// # Errors
    ///
    /// If the file cannot be written, with its name.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        let mut rounded = self.clone();
        for count in rounded.counts.iter_mut().flatten() {
            *count = (*count * 1e3).round() / 1e3;
        }
        let unfinished = path.with_extension(format!("unfinished-{}", std::process::id()));
        let write = || {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(&unfinished, serde_json::to_vec(&rounded)?)?;
            fs::rename(&unfinished, path)
        };
        write().map_err(|error| {
            // What was written of it is of no use.
            let _ = fs::remove_file(&unfinished);
            format!("cannot write {}: {error}", path.display())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(counts: [[f64; 4]; 2]) -> ExpertProfile {
        ExpertProfile {
            gannet_experts: VERSION,
            checkpoint: "ab".into(),
            model: "m".into(),
            layers: vec![1, 2],
            chosen: 2,
            counts: counts.iter().map(|it| it.to_vec()).collect(),
        }
    }

    #[test]
    fn earlier_runs_count_half_as_much_with_every_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = ExpertProfile::path(&folder.path().join("new/folder"), "ab");
        let runs = [[[8.0, 0.0, 4.0, 4.0]; 2], [[0.0, 4.0, 0.0, 4.0]; 2], [[0.0; 4]; 2]];
        for run in runs {
            profile(run).merge_into(&path, 0..4).unwrap();
        }
        let found = ExpertProfile::read(&path).unwrap();
        assert_eq!(found, profile([[4.0, 4.0, 2.0, 6.0]; 2]), "a run without uses is none");
        assert_eq!((found.tokens(), found.shares()[1].clone()), (8.0, vec![0.5, 0.5, 0.25, 0.75]));
        assert_eq!(path.parent().unwrap().read_dir().unwrap().count(), 1);
        // What is no profile of this model is replaced.
        std::fs::write(&path, b"{").unwrap();
        profile(runs[0]).merge_into(&path, 0..4).unwrap();
        assert_eq!(ExpertProfile::read(&path).unwrap(), profile(runs[0]));
    }

    #[test]
    fn ranks_add_the_counts_of_their_own_layers_and_experts() {
        let folder = tempfile::tempdir().unwrap();
        let path = ExpertProfile::path(folder.path(), "ab");
        profile([[8.0; 4]; 2]).merge_into(&path, 0..4).unwrap();
        let mut stage = profile([[2.0; 4]; 2]);
        (stage.layers, stage.counts) = (vec![2, 3], vec![vec![2.0; 4]; 2]);
        stage.merge_into(&path, 0..4).unwrap();
        profile([[1.0, 1.0, 0.0, 0.0]; 2]).merge_into(&path, 0..2).unwrap();
        let found = ExpertProfile::read(&path).unwrap();
        assert_eq!(found.layers, [1, 2, 3]);
        let counts = [[5.0, 5.0, 8.0, 8.0], [4.0, 4.0, 6.0, 6.0], [2.0; 4]];
        assert_eq!(found.counts, counts);
    }

    #[test]
    fn foreign_and_malformed_files_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json");
        let check = |change: &dyn Fn(&mut ExpertProfile), expected: &str| {
            let mut changed = profile([[1.0; 4]; 2]);
            change(&mut changed);
            std::fs::write(&path, serde_json::to_vec(&changed).unwrap()).unwrap();
            let error = ExpertProfile::read(&path).unwrap_err();
            assert!(error.contains("x.json") && error.contains(expected), "{error}");
        };
        check(&|it| it.gannet_experts = 9, "gannet_experts: expected 1, found 9");
        check(&|it| drop(it.counts.pop()), "counts: expected 2 layers, found 1");
        check(&|it| it.counts[1].truncate(3), "counts: expected 4 experts, found 3");
        check(&|it| it.counts[1][2] = -1.0, "found -1");
        check(&|it| it.counts[1][2] = 1e16, "found 1");
        check(&|it| it.chosen = 5, "chosen: expected 1 to 4, found 5");
        std::fs::write(&path, b"[]").unwrap();
        assert!(ExpertProfile::read(&path).unwrap_err().contains("expected a profile"));
        File::create(&path).unwrap().set_len(MAX_BYTES + 1).unwrap();
        assert!(ExpertProfile::read(&path).unwrap_err().contains("found more"));
        assert!(ExpertProfile::read(&folder.path().join("none")).unwrap_err().contains("none"));
        let error = profile([[1.0; 4]; 2]).check_of("cd").unwrap_err();
        assert!(error.contains("cd") && error.contains("ab"), "{error}");
    }
}
