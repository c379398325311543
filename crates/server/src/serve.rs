//! Serving a listener from start to a graceful end.

use crate::http::app::App;
use crate::http::options::ServerOptions;
use crate::http::reload::{self, Reload};
use crate::http::shutdown::{Life, Phase, Signals};
use crate::http::transport::{Connections, Listener};
use crate::router::routes;
use api::Service;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Time for the last frames of streams that the server ends.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Why serving broke off.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The signals could not be used.
    #[error("server: {0}")]
    Io(#[from] std::io::Error),
    /// The engine thread has ended while the server accepted requests.
    #[error("the engine has stopped")]
    EngineStopped,
}

/// How serving ended on a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerExit {
    /// Running requests were finished, or their grace period was.
    Drained,
    /// A second signal cut them short.
    Forced,
}

/// Serves `service` on `listener` until `shutdown` completes; then running requests may finish
/// within the grace period of `options`. Files of keys and certificates are read again when they
/// change, and on SIGHUP.
pub async fn serve(
    listener: impl Into<Listener>,
    service: Service,
    options: ServerOptions,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let listener = listener.into();
    let life = Life::default();
    let (grace, period) = (options.grace, options.reload);
    let files = files(&options, &listener);
    let app = App::new(service.clone(), options.clone(), life.clone());
    let observability = Arc::clone(&app.observability);
    let connections = Connections::new(routes(app), &options, life.clone());
    let server = async { tokio::join!(connections.serve(listener), ask(life.clone(), shutdown)) };
    let mut server = pin!(server);
    let stopped = tokio::select! {
        _ = &mut server => return Ok(()),
        never = observability.window.look(&service.engine.metrics) => match never {},
        never = reload::watch(files, period) => match never {},
        () = service.engine.stopped() => true,
        () = grace_over(&life, grace) => false,
    };
    life.advance(Phase::Closing);
    // Streams that are still open end here.
    let _ = tokio::time::timeout(LAST_WORDS, server).await;
    if stopped { Err(ServeError::EngineStopped) } else { Ok(()) }
}

/// The files that may change while the server runs.
fn files(options: &ServerOptions, listener: &Listener) -> Vec<Arc<dyn Reload>> {
    let mut files: Vec<Arc<dyn Reload>> = vec![Arc::new(options.keys.clone())];
    files.extend(listener.tls().map(|tls| Arc::new(tls.clone()) as Arc<dyn Reload>));
    files
}

/// As [`serve`], until SIGINT or SIGTERM; a second one ends at once.
pub async fn serve_until_signal(
    listener: impl Into<Listener>,
    service: Service,
    options: ServerOptions,
) -> Result<ServerExit, ServeError> {
    let mut signals = Signals::ends()?;
    let (ask, asked) = tokio::sync::oneshot::channel::<()>();
    let shutdown = async {
        let _ = asked.await;
    };
    let second_signal = async {
        signals.next().await;
        tracing::info!("shutting down; a second signal ends at once");
        drop(ask);
        signals.next().await;
    };
    tokio::select! {
        served = serve(listener, service, options, shutdown) => served.map(|()| ServerExit::Drained),
        () = second_signal => Ok(ServerExit::Forced),
    }
}

/// Begins the drain when `shutdown` completes, or the server closes for another reason.
async fn ask(life: Life, shutdown: impl Future<Output = ()>) {
    tokio::select! {
        () = shutdown => {}
        () = life.reached(Phase::Closing) => {}
    }
    life.advance(Phase::Draining);
}

async fn grace_over(life: &Life, grace: Duration) {
    life.reached(Phase::Draining).await;
    tokio::time::sleep(grace).await;
}
