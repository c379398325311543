//! The link to a server that is a process: a message is a line.
//!
//! Invariant: answers go to the request whose number they have, others are dropped. The tasks that
//! read hold at most one message and the last lines of standard error.

use super::context::McpProcess;
use super::fault::LinkFault;
use super::log_tail::LogTail;
use super::message::{Incoming, MAX_MESSAGE_BYTES, RpcOutcome, parsed, reply};
use super::process::ServerProcess;
use serde_json::Value;
use std::collections::HashMap;
use std::io;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

/// Messages to a server that wait to be written.
const MAX_WAITING: usize = 16;
/// Bytes that are read at once.
const CHUNK_BYTES: usize = 8 << 10;
/// Time for the last messages to be written, and for the last lines to be read.
const LAST: Duration = Duration::from_millis(100);

/// The link to a process.
#[derive(Debug)]
pub(super) struct StdioLink {
    /// `None` once no more is sent.
    outgoing: Option<mpsc::Sender<Vec<u8>>>,
    state: Arc<StdioState>,
    writer: JoinHandle<()>,
    reader: JoinHandle<()>,
    log_reader: JoinHandle<()>,
}

/// What the tasks of a link share.
#[derive(Debug)]
struct StdioState {
    process: ServerProcess,
    waiting: Mutex<WaitingRequests>,
    log: LogTail,
    is_modern: AtomicBool,
    /// Closes the input.
    closing: Notify,
}

#[derive(Debug, Default)]
struct WaitingRequests {
    by_id: HashMap<u64, oneshot::Sender<RpcOutcome>>,
    /// Why no more answers come.
    problem: Option<String>,
}

/// The answer to a request that was sent.
#[derive(Debug)]
pub(super) struct AwaitedAnswer {
    id: u64,
    state: Arc<StdioState>,
    answer: oneshot::Receiver<RpcOutcome>,
}

impl StdioLink {
    /// Starts the process, within the runtime.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub(super) fn start(process: McpProcess) -> io::Result<Self> {
        let (process, pipes) = ServerProcess::start(process)?;
        let (input, output) =
            (Sender::from_owned_fd(pipes.input)?, Receiver::from_owned_fd(pipes.output)?);
        let log = Receiver::from_owned_fd(pipes.log)?;
        let state = Arc::new(StdioState {
            process,
            waiting: Mutex::default(),
            log: LogTail::default(),
            is_modern: AtomicBool::new(false),
            closing: Notify::new(),
        });
        let (outgoing, messages) = mpsc::channel(MAX_WAITING);
        let reading = read_messages(output, Arc::clone(&state), outgoing.downgrade());
        Ok(Self {
            outgoing: Some(outgoing),
            writer: tokio::spawn(write_messages(input, messages, Arc::clone(&state))),
            reader: tokio::spawn(reading),
            log_reader: tokio::spawn(read_log(log, Arc::clone(&state))),
            state,
        })
    }

    /// Sends the request `message` with the number `id`.
    ///
    /// # Errors
    ///
    /// If the server has ended.
    pub(super) async fn begin(&self, id: u64, message: &Value) -> Result<AwaitedAnswer, LinkFault> {
        let (sender, answer) = oneshot::channel();
        let state = Arc::clone(&self.state);
        {
            let mut waiting = state.waiting();
            if let Some(problem) = &waiting.problem {
                return Err(LinkFault::Ended(problem.clone()));
            }
            waiting.by_id.insert(id, sender);
        }
        let awaited = AwaitedAnswer { id, state, answer };
        if let Some(outgoing) = &self.outgoing
            && outgoing.send(line(message)).await.is_ok()
        {
            return Ok(awaited);
        }
        Err(LinkFault::Ended("it has closed its input".to_owned()))
    }

    /// Sends a message that has no answer, if the server reads.
    pub(super) fn notify(&self, message: &Value) {
        if let Some(outgoing) = &self.outgoing {
            let _ = outgoing.try_send(line(message));
        }
    }

    /// From now on requests of the server are ignored, as the protocol without sessions has it.
    pub(super) fn set_modern(&self) {
        self.state.is_modern.store(true, Ordering::Relaxed);
    }

    /// Whether no more answers come.
    pub(super) fn has_ended(&self) -> bool {
        self.state.waiting().problem.is_some()
    }

    /// Ends the process: see [`ServerProcess::end`]. Returned are the status and the last lines.
    pub(super) async fn end(mut self, most: Duration) -> (Option<ExitStatus>, Vec<u8>) {
        self.outgoing = None;
        if tokio::time::timeout(LAST, &mut self.writer).await.is_err() {
            self.writer.abort();
        }
        let status = self.state.process.end(most).await;
        let _ = tokio::time::timeout(LAST, &mut self.log_reader).await;
        (status, self.state.log.text())
    }
}

impl Drop for StdioLink {
    fn drop(&mut self) {
        self.state.process.kill();
        for task in [&self.writer, &self.reader, &self.log_reader] {
            task.abort();
        }
    }
}

impl StdioState {
    fn waiting(&self) -> std::sync::MutexGuard<'_, WaitingRequests> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, incoming: Incoming, outgoing: &mpsc::WeakSender<Vec<u8>>) {
        match incoming {
            Incoming::Answer(Some(id), outcome) => {
                if let Some(sender) = self.waiting().by_id.remove(&id) {
                    let _ = sender.send(outcome);
                }
            }
            // An error that says of no request is about the one that waits, if it is one.
            Incoming::Answer(None, outcome) => {
                let mut waiting = self.waiting();
                if waiting.by_id.len() == 1 {
                    for (_, sender) in waiting.by_id.drain() {
                        let _ = sender.send(outcome.clone());
                    }
                }
            }
            Incoming::Request(id, method) => {
                if let Some(outgoing) = outgoing.upgrade()
                    && !self.is_modern.load(Ordering::Relaxed)
                {
                    // A server that does not read gets no answers.
                    let _ = outgoing.try_send(line(&reply(&id, &method)));
                }
            }
            Incoming::Notification => {}
        }
    }

    fn end_with(&self, problem: String) {
        let mut waiting = self.waiting();
        waiting.problem = Some(problem);
        waiting.by_id.clear();
    }
}

impl AwaitedAnswer {
    /// Waits for the answer.
    ///
    /// # Errors
    ///
    /// If the server has ended.
    pub(super) async fn outcome(&mut self) -> Result<RpcOutcome, LinkFault> {
        match (&mut self.answer).await {
            Ok(outcome) => Ok(outcome),
            Err(_) => {
                let problem = self.state.waiting().problem.clone();
                Err(LinkFault::Ended(problem.unwrap_or_default()))
            }
        }
    }
}

impl Drop for AwaitedAnswer {
    fn drop(&mut self) {
        self.state.waiting().by_id.remove(&self.id);
    }
}

fn line(message: &Value) -> Vec<u8> {
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// Writes messages until there are no more, or the input is to be closed, and closes it.
async fn write_messages(
    mut input: Sender,
    mut messages: mpsc::Receiver<Vec<u8>>,
    state: Arc<StdioState>,
) {
    let write_all = async {
        while let Some(message) = messages.recv().await {
            if input.write_all(&message).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = write_all => {}
        () = state.closing.notified() => {}
    }
}

async fn read_messages(
    output: Receiver,
    state: Arc<StdioState>,
    outgoing: mpsc::WeakSender<Vec<u8>>,
) {
    let mut output = BufReader::with_capacity(CHUNK_BYTES, output);
    let problem = loop {
        match next_line(&mut output).await {
            Ok(Some(line)) => {
                let messages = parsed(&line);
                if messages.is_empty() {
                    state.log.add_line(&line);
                }
                messages.into_iter().for_each(|message| state.take(message, &outgoing));
            }
            Ok(None) => break "it has closed its output".to_owned(),
            Err(error) => break error.to_string(),
        }
    };
    state.end_with(problem);
    // Nothing is read any more: a server that writes would wait forever.
    tokio::time::sleep(LAST).await;
    state.closing.notify_one();
    state.process.kill();
}

/// The next line; `None` at the end.
async fn next_line(output: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let read = output.take(MAX_MESSAGE_BYTES as u64 + 1).read_until(b'\n', &mut line).await?;
    if read == 0 {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') && line.len() > MAX_MESSAGE_BYTES {
        return Err(io::Error::other(format!("a message has over {MAX_MESSAGE_BYTES} bytes")));
    }
    Ok(Some(line))
}

async fn read_log(mut log: Receiver, state: Arc<StdioState>) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(read @ 1..) = log.read(&mut chunk).await {
        state.log.add(&chunk[..read]);
    }
}
