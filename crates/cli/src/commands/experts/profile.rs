//! `gannet experts profile`: how often earlier runs have used the experts of a model.

use crate::args::ModelArgs;
use crate::output;
use crate::weights::profile_folder;
use anyhow::{Context, Result, anyhow, bail};
use clap::Subcommand;
use engine::ExpertProfile;
use formats::{Checkpoint, OpenOptions};
use serde_json::json;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Show, remove and copy what is known of the experts that a model's tokens choose
///
/// Runs with fewer experts in memory than there are count the choices of tokens and merge them with
/// those of earlier runs when they end. Later runs read the most used experts at the start
/// (--weights-preload). A profile changes no answer.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: ProfileCommand,
}

#[derive(Debug, Subcommand)]
enum ProfileCommand {
    Show(ShowArgs),
    Reset(ResetArgs),
    Export(ExportArgs),
    Import(ImportArgs),
}

/// Print how many tokens were counted, and how uneven their choices are
#[derive(Debug, clap::Args)]
struct ShowArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Print one JSON object, with the counts of all experts
    #[arg(long)]
    json: bool,
}

/// Remove the profile of a model
#[derive(Debug, clap::Args)]
struct ResetArgs {
    #[command(flatten)]
    model: ModelArgs,
}

/// Write the profile of a model into a file, for another machine
#[derive(Debug, clap::Args)]
struct ExportArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// File to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
}

/// Take the profile of a model from a file that `export` wrote, instead of what is known
#[derive(Debug, clap::Args)]
struct ImportArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// File to read
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        ProfileCommand::Show(args) => show(args),
        ProfileCommand::Reset(args) => reset(&ProfilePlace::of(&args.model)?),
        ProfileCommand::Export(args) => export(args),
        ProfileCommand::Import(args) => import(args),
    }
}

/// Where the profile of a model is.
struct ProfilePlace {
    model: PathBuf,
    identity: String,
    path: PathBuf,
    /// Layers with experts, and experts of each.
    shape: [usize; 2],
}

impl ProfilePlace {
    fn of(model: &ModelArgs) -> Result<Self> {
        let folder = profile_folder().context("profiles: no HOME for a cache folder")?;
        let model = model.locate()?;
        let checkpoint = Checkpoint::open(&model, &OpenOptions::default())?;
        let Some(experts) = &checkpoint.config().hyperparameters().experts else {
            bail!("{}: expected a model with experts, found none", model.display());
        };
        let layers = experts.layers.iter().filter(|has_experts| **has_experts).count();
        let shape = [layers, experts.count];
        let identity = engine::identity(&checkpoint);
        let path = ExpertProfile::path(&folder, &identity);
        Ok(Self { model, identity, path, shape })
    }

    fn read(&self) -> Result<ExpertProfile> {
        if !self.path.exists() {
            bail!("{}: nothing is known of its experts yet", self.model.display());
        }
        self.read_from(&self.path)
    }

    /// Reads the profile of this model in a file.
    fn read_from(&self, path: &Path) -> Result<ExpertProfile> {
        let profile = ExpertProfile::read(path).map_err(|problem| anyhow!(problem))?;
        let of_model = profile.check_of(&self.identity);
        of_model.map_err(|problem| anyhow!("{}: {problem}", path.display()))?;
        let ([layers, experts], counts) = (self.shape, &profile.counts);
        if counts.len() != layers || counts.iter().any(|counts| counts.len() != experts) {
            let (path, found) = (path.display(), counts.first().map_or(0, Vec::len));
            bail!(
                "{path}: counts: expected {layers} layers of {experts} experts, found {} of {found}",
                counts.len()
            );
        }
        Ok(profile)
    }
}

fn show(args: &ShowArgs) -> Result<()> {
    let place = ProfilePlace::of(&args.model)?;
    let profile = place.read()?;
    let path = &place.path;
    output::report(
        args.json,
        || json!({"path": path.display().to_string(), "tokens": profile.tokens(), "profile": profile}),
        || table(&profile, path),
    )
}

/// The shares of choices that the hottest experts have.
fn table(profile: &ExpertProfile, path: &Path) -> String {
    let ExpertProfile { model, checkpoint, layers, counts, .. } = profile;
    let mut text = format!(
        "{model}: {:.0} tokens, those of earlier runs at half their number for each later run\n\
         identity {checkpoint}, {}\n\nlayer   hottest 1/8   1/4   1/2    never used\n",
        profile.tokens(),
        path.display()
    );
    for (layer, counts) in layers.iter().zip(counts) {
        let mut sorted = counts.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let all: f64 = sorted.iter().sum();
        let share = |of: usize| {
            let hottest: f64 = sorted.iter().take(sorted.len().div_ceil(of)).sum();
            100.0 * hottest / all.max(f64::MIN_POSITIVE)
        };
        let unused = counts.iter().filter(|count| **count == 0.0).count();
        let [eighth, quarter, half] = [8, 4, 2].map(share);
        text += &format!("{layer:5}{eighth:12.0} %{quarter:4.0} %{half:4.0} %{unused:14}\n");
    }
    text
}

fn reset(place: &ProfilePlace) -> Result<()> {
    match std::fs::remove_file(&place.path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            output::note(format_args!("{}: there is no profile", place.model.display()));
            Ok(())
        }
        removed => removed.with_context(|| format!("cannot remove {}", place.path.display())),
    }
}

fn export(args: &ExportArgs) -> Result<()> {
    let profile = ProfilePlace::of(&args.model)?.read()?;
    if args.output.exists() && !args.force {
        bail!("{} exists already; --force replaces it", args.output.display());
    }
    profile.write(&args.output).map_err(|problem| anyhow!(problem))
}

fn import(args: &ImportArgs) -> Result<()> {
    let place = ProfilePlace::of(&args.model)?;
    let profile = place.read_from(&args.file)?;
    profile.write(&place.path).map_err(|problem| anyhow!(problem))
}
