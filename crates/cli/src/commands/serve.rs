//! `gannet serve`: one model or many over HTTP.

mod adapter_folder;
mod limits;
mod listen;
mod models;
mod notify;
mod routes;
mod served_model;
mod state_dir;

use crate::args::{EngineArgs, PoolingArgs, SamplingArgs};
use crate::effective::EffectiveSettings;
use crate::interrupt::{self, Signal, Watch};
use crate::load::{LoadedModel, SourceArgs};
use crate::new_file::NewFile;
use crate::output::{self, note};
use crate::receipt_args::ReceiptArgs;
use adapter_folder::AdapterFolderArgs;
use anyhow::{Context, Result, bail};
use base::Interrupted;
use limits::{ClientArgs, ConnectionArgs};
use listen::ListenArgs;
use models::{ModelsArgs, SharedSettings};
use notify::{ServiceState, notify};
use routes::RouteArgs;
use served_model::ServedArgs;
use server::{Listener, ModelCollection, ServedModels, ServerOptions};
use state_dir::StateArgs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// Serve models over HTTP, with the protocols of OpenAI, Anthropic, Ollama and llama-server
///
/// Clients only change their base URL. A browser shows a chat at / and the routes at /docs. For
/// operation there are GET /health, /ready, /metrics and /v1/stats. The options under Sampling are
/// the defaults of requests. After Ctrl-C or SIGTERM, running requests finish first; a second
/// signal exits at once. SIGHUP reloads keys and certificates.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the settings in effect as a gannet.yaml, without API keys, or write them to a new
    /// FILE, and exit
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    print_config: Option<Option<PathBuf>>,
    /// With --print-config, print the settings as JSON: the given ones and the defaults
    #[arg(long, requires = "print_config")]
    json: bool,
    /// Replace an existing file of --print-config
    #[arg(long, requires = "print_config")]
    force: bool,
    /// End as after SIGTERM when standard input ends, which it does at the latest when the program
    /// that holds its other end is gone
    #[arg(long)]
    stop_at_eof: bool,
    #[command(flatten)]
    listen: ListenArgs,
    #[command(flatten)]
    models: ModelsArgs,
    #[command(flatten)]
    routes: RouteArgs,
    #[command(flatten)]
    adapters: AdapterFolderArgs,
    #[command(flatten)]
    clients: ClientArgs,
    #[command(flatten)]
    connections: ConnectionArgs,
    #[command(flatten)]
    receipts: ReceiptArgs,
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    pooling: PoolingArgs,
    #[command(flatten)]
    pub source: SourceArgs,
}

/// Time for remaining tasks after the server has stopped.
const SHUTDOWN_TIME: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &Args, effective: &EffectiveSettings) -> Result<()> {
    let options = args.routes.over(args.clients.options(&args.connections)?);
    let mut options = args.receipts.over(args.adapters.over(args.state.over(options)))?;
    let settings = effective.yaml(&args.listen.chosen(), &options.keys.labels());
    if let Some(file) = &args.print_config {
        effective.check_utf8()?;
        let settings = match args.json {
            true => serde_json::to_string_pretty(&effective.json(&args.listen.chosen()))? + "\n",
            false => settings,
        };
        return match file {
            Some(file) => NewFile::write(file, args.force, settings.as_bytes()),
            None => output::text(&settings),
        };
    }
    tracing::debug!("{settings}");
    if args.clients.has_file() || args.listen.has_files() {
        interrupt::leave_hangups();
    }
    if args.stop_at_eof {
        interrupt::end_with_input().context("--stop-at-eof: cannot start a thread")?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the server's threads")?;
    // Bound before the model is loaded, which may take long, so that an error shows at once.
    let (listener, addresses) = runtime.block_on(args.listen.listen(options.keys.is_open()))?;
    let state = args.state.open()?;
    options.state.clone_from(&state);
    let traces = args.engine.traces()?;
    if let Some(folder) = &options.slot_files {
        open_slot_files(folder)?;
    }
    let keeps_all_prefixes = options.slot_files.is_some();
    let shared = SharedSettings { effective, traces: traces.as_ref(), keeps_all_prefixes };
    let (models, loaded) = match args.models.collection(&shared)? {
        Some(many) => {
            describe(&many);
            (many.into(), None)
        }
        None => {
            let (models, loaded) = args.load(&shared)?;
            (models, Some(loaded))
        }
    };
    // Watched before anybody learns that the server runs, and may end it.
    let watch = Watch::new();
    addresses.iter().for_each(|address| note(format_args!("listening on {address}")));
    notify(ServiceState::Ready);
    let ended = runtime.block_on(serve(listener, models, options, watch));
    // The engine stops with the last of the server's tasks, the trace writer with the engine.
    runtime.shutdown_timeout(SHUTDOWN_TIME);
    if let Some(loaded) = loaded {
        loaded.streamed().into_iter().for_each(note);
        loaded.finish();
    }
    if let Some(state) = state {
        state.finish();
    }
    if let Some(traces) = traces {
        traces.finish(SHUTDOWN_TIME);
    }
    ended
}

impl Args {
    /// Loads the only model of the server.
    fn load(&self, shared: &SharedSettings<'_>) -> Result<(ServedModels, LoadedModel)> {
        let aliases = self.routes.aliases();
        let Self { source, adapters, sampling, .. } = self;
        let source = &source.clone().pooled(self.pooling);
        let keeps_all_prefixes = shared.keeps_all_prefixes;
        let served =
            ServedArgs { source, adapters, sampling, aliases: &aliases, keeps_all_prefixes };
        let engine = self.engine.options(shared.traces);
        let (loaded, service) = served.load(self.routes.name(), engine, None)?;
        if shared.keeps_all_prefixes && service.prefixes.is_none() {
            bail!("--slot-save-path: the model's prefixes are not kept on disk; see --kv-dir");
        }
        note(&loaded.description);
        Ok((ServedModels::One { service, aliases }, loaded))
    }
}

/// Says which models are served.
fn describe(many: &ModelCollection) {
    let names: Vec<&str> = many.models.iter().map(|model| &*model.name).collect();
    let memory = many.memory.map_or_else(String::new, |memory| {
        format!(" in up to {:.1} GiB", memory as f64 / f64::from(1 << 30))
    });
    note(format_args!("models on request{memory}: {}", names.join(", ")));
}

/// Makes the folder for the files of slots ready.
fn open_slot_files(folder: &Path) -> Result<()> {
    crate::folders::create_private(folder)?;
    if let Err(error) = gannet::remove_unfinished(folder) {
        tracing::warn!("{}: {error}", folder.display());
    }
    Ok(())
}

async fn serve(
    listener: Listener,
    models: ServedModels,
    options: ServerOptions,
    mut watch: Watch,
) -> Result<()> {
    static SIGNAL: OnceLock<Signal> = OnceLock::new();
    let shutdown = async move {
        let signal = watch.wait().await;
        let _ = SIGNAL.set(signal);
        notify(ServiceState::Stopping);
        note("shutting down; a second Ctrl-C exits at once");
        // The watch is dropped here: a second signal ends the process.
    };
    server::serve(listener, models, options, shutdown).await?;
    match SIGNAL.get() {
        Some(Signal::Interrupt | Signal::Hangup) => Err(Interrupted.into()),
        _ => Ok(()),
    }
}
