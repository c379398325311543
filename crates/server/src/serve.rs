//! Serving a listener from start to a graceful end.

use crate::http::app::App;
use crate::http::models::{LoadError, ServedModels};
use crate::http::options::ServerOptions;
use crate::http::reload::{self, Reload};
use crate::http::shutdown::{Life, Phase};
use crate::http::transport::{Connections, Listener};
use crate::protocols::responses::running::resume;
use crate::router::{routes, store};
use std::iter;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Time for the last frames of streams that the server ends.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Why serving broke off.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The engine thread has ended while the server accepted requests.
    #[error("the engine has stopped")]
    EngineStopped,
    /// A pinned model cannot be loaded.
    #[error("{0}")]
    Load(#[from] LoadError),
}

/// Serves `models` on `listener` until `shutdown` completes; then running requests may finish
/// within the grace period of `options`. Files of keys and certificates are read again when they
/// change, and on SIGHUP.
///
/// # Errors
/// If a model cannot be loaded at the start, or an engine stops.
pub async fn serve(
    listener: impl Into<Listener>,
    models: impl Into<ServedModels>,
    options: ServerOptions,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let listener = listener.into();
    let loopback = listener.is_loopback();
    let mut app = App::new(models.into(), options, Life::default());
    app.loopback = loopback;
    let App { models, options, life, .. } = &app;
    models.load_pinned().await?;
    let tls = listener.tls.iter().map(|tls| Arc::new(tls.clone()) as Arc<dyn Reload>);
    // The files that may change while the server runs.
    let files = iter::once(Arc::new(options.keys.clone()) as _).chain(tls).collect();
    let store = store(options);
    resume(&app, &store);
    let connections = Connections::new(routes(app.clone(), store), options, life.clone());
    let server = async { tokio::join!(connections.serve(listener), ask(life, shutdown)) };
    let mut server = pin!(server);
    let stopped = tokio::select! {
        _ = &mut server => {
            // Responses in the background, which have no connection, are left to the next server.
            life.advance(Phase::Closing);
            models.close().await;
            return Ok(());
        }
        never = models.attend() => match never {},
        never = reload::watch(files, options.reload) => match never {},
        () = models.stopped() => true,
        () = grace_over(life, options.grace) => false,
    };
    life.advance(Phase::Closing);
    // Streams that are still open end here.
    let _ = tokio::time::timeout(LAST_WORDS, server).await;
    models.close().await;
    if stopped { Err(ServeError::EngineStopped) } else { Ok(()) }
}

/// Begins the drain when `shutdown` completes, or the server closes for another reason.
async fn ask(life: &Life, shutdown: impl Future<Output = ()>) {
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
