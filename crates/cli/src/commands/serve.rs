//! `gannet serve`: the model over HTTP.

use super::run::describe;
use crate::args::EngineArgs;
use crate::exit::Interrupted;
use crate::interrupt::{Signal, Watch};
use crate::load::SourceArgs;
use crate::output::note;
use anyhow::{Context, Result};
use server::ServerOptions;
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;
use tokio::net::TcpListener;

/// Serve a model over HTTP, with OpenAI's protocol
///
/// POST /v1/chat/completions and /v1/completions, GET /v1/models and /version; for those who watch
/// over it GET /health, /ready, /metrics and /v1/stats; in a browser a chat at /. Ctrl-C or SIGTERM
/// lets running requests finish first; a second one ends at once.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port to listen on; 0 for any that is free
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    port: u16,
    /// Key that clients must send as bearer token
    #[arg(long, value_name = "KEY", env = "GANNET_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// Origin that browsers may call from, or *
    #[arg(long, value_name = "ORIGIN")]
    cors: Option<String>,
    /// Seconds that running requests get to finish when the server is asked to end
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    grace: u64,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    source: SourceArgs,
}

/// Time for what is left to do when the server has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the server's threads")?;
    // Taken before the model is loaded, which may take its time: a taken port is known at once.
    let address = (args.host, args.port);
    let listener = runtime
        .block_on(TcpListener::bind(address))
        .with_context(|| format!("cannot listen on {}:{}", args.host, args.port))?;
    let traces = args.engine.traces()?;
    let loaded = args.source.load_for_many(args.engine.options(traces.as_ref()))?;
    note(format_args!("{}", describe(&loaded)));
    note(format_args!("listening on http://{}", listener.local_addr()?));
    let ended = runtime.block_on(serve(listener, loaded.service, args.options()));
    // The engine ends with the last of the server's tasks, the writer with the engine.
    runtime.shutdown_timeout(LAST_WORDS);
    if let Some(traces) = traces {
        traces.finish(LAST_WORDS);
    }
    ended
}

async fn serve(
    listener: TcpListener,
    service: api::Service,
    options: ServerOptions,
) -> Result<ExitCode> {
    static ASKED_BY: OnceLock<Signal> = OnceLock::new();
    let mut watch = Watch::new();
    let shutdown = async move {
        let signal = watch.wait().await;
        let _ = ASKED_BY.set(signal);
        note(format_args!("ending; a second Ctrl-C ends at once"));
        // The watch ends here: a second signal is for the process.
    };
    server::serve(listener, service, options, shutdown).await?;
    match ASKED_BY.get() {
        Some(Signal::Interrupt) => Err(Interrupted.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

impl Args {
    fn options(&self) -> ServerOptions {
        ServerOptions {
            api_key: self.api_key.clone(),
            cors_origin: self.cors.clone(),
            grace: Duration::from_secs(self.grace),
            ..ServerOptions::default()
        }
    }
}
