//! `gannet receipt verify`: checks a receipt, and computes its answer again.

mod again;
mod ids;
mod verdict;

use crate::exit::SilentExit;
use crate::interrupt;
use crate::recorded_model::RecordedModelArgs;
use crate::weights_digest::weights_digest;
use crate::{load, output};
use again::Recomputation;
use anyhow::{Context, Result, bail};
use api::{DigestedParts, IdsDigest, Receipt, ReceiptModel, TextParts};
use formats::{Checkpoint, OpenOptions};
use std::path::{Path, PathBuf};
use text::ChatTemplate;
use verdict::{Verdict, VerdictKind};

/// Check a receipt of an answer, and compute the answer again where its prompt is given
///
/// Without a prompt, the signature and the digests of model, prompt and answer are checked, and
/// nothing is computed. With --prompt-ids or --request, the answer is computed again on this
/// machine, and its tokens and all bits of all logits are compared. Exits with 0 if all is as in
/// the receipt, 1 if something differs, and 2 if it cannot be checked here.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The receipt
    #[arg(value_name = "RECEIPT")]
    receipt: PathBuf,
    /// File with the token ids of the prompt, as a JSON array or with spaces between them
    #[arg(long, value_name = "FILE")]
    prompt_ids: Option<PathBuf>,
    /// File with the JSON body of the request, for requests with schemas, grammars or tools too
    #[arg(long, value_name = "FILE", conflicts_with = "prompt_ids")]
    request: Option<PathBuf>,
    /// Route of the request [default: /v1/chat/completions for one with messages, /v1/responses
    /// with an input, else /v1/completions]
    #[arg(long, value_name = "PATH", requires = "request")]
    url: Option<String>,
    /// File with the token ids of the answer, in the forms of --prompt-ids
    #[arg(long, value_name = "FILE")]
    answer: Option<PathBuf>,
    /// Public key that the receipt must be signed with, in hexadecimal digits
    #[arg(long, value_name = "HEX")]
    key: Option<String>,
    /// Jinja template that the model was served with, instead of its own
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
    #[command(flatten)]
    recorded: RecordedModelArgs,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Most bytes of a receipt.
const MAX_BYTES: u64 = 1 << 30;

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut verdict = Verdict::default();
    match check(args, &mut verdict) {
        Err(error) if interrupt::caused(&error) => return Err(error),
        Err(error) => verdict.reason = Some(format!("{error:#}")),
        Ok(()) => {}
    }
    match args.json {
        true => output::json(&verdict.to_json())?,
        false => output::lines(verdict.lines())?,
    }
    match verdict.kind() {
        VerdictKind::Same => Ok(()),
        VerdictKind::Differs => Err(SilentExit(1).into()),
        VerdictKind::Unchecked => Err(SilentExit(2).into()),
    }
}

/// Checks the parts in the order of their cost. The computation comes last, and is left
/// out where something differs before.
fn check(args: &Args, verdict: &mut Verdict) -> Result<()> {
    let receipt = read(&args.receipt)?;
    verdict.check_signature(&receipt, args.key.as_deref());
    let parts = DigestedParts {
        model: None,
        prompt: args.prompt_ids.as_deref().map(digest_of).transpose()?,
        answer: args.answer.as_deref().map(digest_of).transpose()?,
    };
    verdict.add(receipt.differences_of_parts(&parts));
    let path = args.recorded.model.locate()?;
    let checkpoint = Checkpoint::open(&path, &OpenOptions::default())?;
    let model = Some(args.digests(&path, &checkpoint)?);
    verdict.add(receipt.differences_of_parts(&DigestedParts { model, ..Default::default() }));
    verdict.check_checkpoint(&receipt.settings, &engine::identity(&checkpoint));
    if verdict.kind() == VerdictKind::Differs {
        return Ok(());
    }
    if receipt.settings.arithmetic_version != kernels::ARITHMETIC {
        let (then, now) = (receipt.settings.arithmetic_version, kernels::ARITHMETIC);
        bail!("expected version {now} of the arithmetic, as this program has, found {then}");
    }
    let again = Recomputation {
        recorded: &args.recorded,
        chat_template: args.chat_template.as_deref(),
        receipt: &receipt,
        checkpoint: &checkpoint,
        path: &path,
    };
    let again = match (&args.prompt_ids, &args.request) {
        (Some(file), _) => again.of_ids(&ids::read(file)?)?,
        (None, Some(file)) => again.of_request(file, args.url.as_deref())?,
        (None, None) => return Ok(()),
    };
    verdict.computed = Some(again.answer.ids.tokens);
    verdict.add(receipt.differences(&again));
    Ok(())
}

fn read(path: &Path) -> Result<Receipt> {
    let text = formats::read_text(path, MAX_BYTES)?;
    let receipt = Receipt::parse(&text).map_err(anyhow::Error::msg);
    receipt.with_context(|| path.display().to_string())
}

fn digest_of(path: &Path) -> Result<IdsDigest> {
    Ok(IdsDigest::of(&ids::read(path)?))
}

impl Args {
    /// The digests of the model at `path`.
    fn digests(&self, path: &Path, checkpoint: &Checkpoint) -> Result<ReceiptModel> {
        let assets = load::assets(checkpoint, &self.recorded.model.files)?;
        let template = self.chat_template.as_deref().map(read_template).transpose()?;
        let text = TextParts { assets: &assets, template: template.as_ref() };
        let weights = weights_digest(path)?;
        Ok(ReceiptModel::of(weights, &assets.tokenizer, text.template_source()))
    }
}

fn read_template(path: &Path) -> Result<ChatTemplate> {
    let context = || format!("cannot read {}", path.display());
    let source = std::fs::read_to_string(path).with_context(context)?;
    ChatTemplate::from_source(&source).with_context(context)
}
