//! Serving a listener from start to a graceful end.

use crate::app::{App, routes};
use crate::options::ServerOptions;
use crate::shutdown::{Life, Phase, Signals};
use api::Service;
use axum::serve::ListenerExt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// Time for the last words of streams that the server ends.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Why serving broke off.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The network or the signals could not be used.
    #[error("server: {0}")]
    Io(#[from] std::io::Error),
    /// The engine thread has ended while requests could still come.
    #[error("the engine has stopped")]
    EngineStopped,
}

/// How serving ended on a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Running requests were finished, or their grace period was.
    Drained,
    /// A second signal cut them short.
    Forced,
}

/// Serves `service` on `listener` until `shutdown` completes; then running requests may finish
/// within the grace period of `options`.
pub async fn serve(
    listener: TcpListener,
    service: Service,
    options: ServerOptions,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let life = Life::default();
    let grace = options.grace;
    let app = App::new(service.clone(), options, life.clone());
    let watch = Arc::clone(&app.watch);
    let app = routes(app);
    let listener = listener.tap_io(|socket| {
        // Without it, small events wait for each other; a socket that refuses still works.
        let _ = socket.set_nodelay(true);
    });
    let server = axum::serve(listener, app).with_graceful_shutdown(ask(life.clone(), shutdown));
    let mut server = pin!(server.into_future());
    let stopped = tokio::select! {
        served = &mut server => return Ok(served?),
        never = watch.look(&service) => match never {},
        () = service.stopped() => true,
        () = grace_over(&life, grace) => false,
    };
    life.advance(Phase::Closing);
    // Streams that do not end even now end with the process.
    let _ = tokio::time::timeout(LAST_WORDS, server).await;
    if stopped { Err(ServeError::EngineStopped) } else { Ok(()) }
}

/// As [`serve`], until SIGINT or SIGTERM; a second one ends at once.
pub async fn serve_until_signal(
    listener: TcpListener,
    service: Service,
    options: ServerOptions,
) -> Result<Ended, ServeError> {
    let mut signals = Signals::install()?;
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
        served = serve(listener, service, options, shutdown) => served.map(|()| Ended::Drained),
        () = second_signal => Ok(Ended::Forced),
    }
}

/// Ends the listening when `shutdown` completes, or the server closes for another reason.
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
