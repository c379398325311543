//! `gannet template`: renders messages with a chat template.

use super::tokenize::{folder, gguf};
use crate::args::FileArgs;
use crate::{input, output};
use anyhow::{Context, Result};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use text::{ChatTemplate, NaiveDateTime, SpecialTokens, TextAssets};

/// Render messages with a chat template
///
/// Nothing is added to the rendering, except a line end where standard output is a terminal, nor to
/// the variables: servers also give date_string and datetime.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder, .gguf file, owner/name on the hub, or `builtin`
    #[arg(required_unless_present = "template")]
    model: Option<OsString>,
    /// Jinja file, instead of a model's template
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "name"])]
    template: Option<PathBuf>,
    /// JSON object with messages, tools, add_generation_prompt and other variables; `-` for
    /// standard input
    #[arg(short, long, value_name = "CASE.json")]
    input: PathBuf,
    /// Name of the template, where the model has several
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Text of bos_token, instead of that of the model
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    bos: Option<String>,
    /// Text of eos_token, instead of that of the model
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    eos: Option<String>,
    /// Text of pad_token, instead of that of the model
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pad: Option<String>,
    /// Text of unk_token, instead of that of the model
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    unk: Option<String>,
    /// Time that strftime_now returns, in RFC 3339 [default: now]
    #[arg(long, value_name = "RFC3339", value_parser = text::parse_now)]
    now: Option<NaiveDateTime>,
    #[command(flatten)]
    files: FileArgs,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let json = input::read_path(&args.input)?;
    let case: Value = serde_json::from_str(&json)
        .with_context(|| format!("{}: expected JSON", args.input.display()))?;
    output::exact(&match (&args.template, &args.model) {
        (Some(template), _) => render_file(args, template, &case)?,
        (None, model) => render_model(args, model.as_deref().unwrap_or_default(), &case)?,
    })
}

fn render_file(args: &Args, path: &Path, case: &Value) -> Result<String> {
    let source = input::read_path(path)?;
    let rendered = ChatTemplate::from_source(&source).and_then(|template| {
        template.render(case, &args.special(SpecialTokens::default()), args.now)
    });
    rendered.with_context(|| format!("cannot render {}", path.display()))
}

fn render_model(args: &Args, model: &OsStr, case: &Value) -> Result<String> {
    let path = args.files.locate(model)?;
    let context = || format!("cannot render the template of {}", path.display());
    let mut assets = match gguf(&path)? {
        Some(gguf) => TextAssets::from_gguf(&gguf, &args.files.gguf_options()),
        None => TextAssets::from_folder(&folder(&path)),
    }
    .with_context(context)?;
    assets.special = args.special(assets.special);
    let tools = case["tools"].as_array().is_some_and(|tools| !tools.is_empty());
    let template = assets.templates.get(args.name.as_deref(), tools).with_context(context)?;
    Ok(assets.render(&template, case, args.now).with_context(context)?.text)
}

impl Args {
    /// The special tokens of `model`, except for those given.
    fn special(&self, model: SpecialTokens) -> SpecialTokens {
        SpecialTokens {
            bos: self.bos.clone().or(model.bos),
            eos: self.eos.clone().or(model.eos),
            pad: self.pad.clone().or(model.pad),
            unk: self.unk.clone().or(model.unk),
            others: model.others,
        }
    }
}
