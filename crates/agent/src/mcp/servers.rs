//! The servers of a session.
//!
//! Invariant: all work is done by one thread, and every wait for it ends.

use super::answer::McpAnswer;
use super::context::McpContext;
use super::fault::McpError;
use super::link::LinkOpener;
use super::listing::McpTool;
use super::process::MAX_END;
use super::server::McpServer;
use super::settings::McpSettings;
use super::stop::{StopSignal, next_result};
use serde_json::Value;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Mutex;

/// Threads for work that blocks, as the resolution of names.
const MAX_BLOCKING: usize = 2;
/// The servers that run, with their tools. They are ended when this is dropped: a process has its
/// input closed, gets `SIGTERM` after a while, and then is killed with what it has started.
#[derive(Debug)]
pub struct McpServers {
    runtime: Option<Runtime>,
    servers: Vec<Arc<Mutex<McpServer>>>,
    /// The tools of each server in order.
    tools: Vec<McpTool>,
    /// For each tool, its server and its number there.
    places: Vec<ToolPlace>,
    problems: Vec<McpProblem>,
    end: Duration,
}

#[derive(Clone, Copy, Debug)]
struct ToolPlace {
    server: usize,
    index: usize,
}

/// What is wrong with a server, or with tools of one that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpProblem {
    /// The server's name in the settings.
    pub server: String,
    /// What is wrong, printable.
    pub text: String,
}

impl McpServers {
    /// Starts all servers at the same time, and lists their tools. A server that does not start is
    /// a problem, and so is a tool that models cannot call; the others work. Servers that have not
    /// started when `is_cancelled` says so are given up.
    pub fn start(
        settings: &McpSettings,
        context: &McpContext,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Self {
        let mut servers = Self {
            runtime: None,
            servers: Vec::new(),
            tools: Vec::new(),
            places: Vec::new(),
            problems: Vec::new(),
            end: 2 * context.limits.end + MAX_END,
        };
        if settings.servers.is_empty() {
            return servers;
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(MAX_BLOCKING)
            .thread_name("mcp")
            .enable_io()
            .enable_time()
            .build();
        match runtime {
            Ok(runtime) => {
                servers.start_all(&runtime, settings, context, is_cancelled);
                servers.runtime = Some(runtime);
            }
            Err(error) => {
                for server in settings.servers.keys() {
                    servers.report(server, format!("no thread can be started: {error}"));
                }
            }
        }
        servers
    }

    fn start_all(
        &mut self,
        runtime: &Runtime,
        settings: &McpSettings,
        context: &McpContext,
        is_cancelled: &dyn Fn() -> bool,
    ) {
        let (set_stop, stop) = StopSignal::new();
        let mut starting = Vec::new();
        for (name, server) in &settings.servers {
            let (name, settings) = (name.clone(), server.clone());
            let opener = LinkOpener { name: name.clone(), settings, context: context.clone() };
            let (sender, started) = mpsc::channel();
            let stop = stop.clone();
            runtime.spawn(async move {
                let mut server = McpServer::new(opener);
                let outcome = server.start(&stop).await;
                let _ = sender.send(outcome.map(|problems| (server, problems)));
            });
            starting.push((name, started));
        }
        for (name, started) in starting {
            match next_result(&started, &set_stop, is_cancelled) {
                Some(Ok((server, problems))) => self.add(server, problems),
                Some(Err(problem)) => self.report(&name, problem),
                None => self.report(&name, "it has not started".to_owned()),
            }
        }
    }

    fn add(&mut self, server: McpServer, problems: Vec<String>) {
        for problem in problems {
            self.report(server.name(), problem);
        }
        for (index, tool) in server.tools.iter().enumerate() {
            self.tools.push(tool.tool.clone());
            self.places.push(ToolPlace { server: self.servers.len(), index });
        }
        self.servers.push(Arc::new(Mutex::new(server)));
    }

    fn report(&mut self, server: &str, text: String) {
        self.problems.push(McpProblem { server: server.to_owned(), text });
    }

    /// The tools of all servers, by the names of the servers and then as they list them.
    pub fn tools(&self) -> &[McpTool] {
        &self.tools
    }

    /// Which servers have not started, and which tools are left out.
    pub fn problems(&self) -> &[McpProblem] {
        &self.problems
    }

    /// Lines about each server: its state and its tools, or why it has not started, and which tools
    /// are left out.
    pub fn states(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut running = Vec::new();
        for server in &self.servers {
            // No call is under way, since a call has the servers to itself.
            let Ok(server) = server.try_lock() else { continue };
            let tools: Vec<&str> = server.tools.iter().map(|it| it.tool.tool.as_str()).collect();
            lines.push(format!("{}: {}; {}", server.name(), server.state(), tools.join(", ")));
            lines.extend(self.problems_of(server.name()).map(|text| format!("  {text}")));
            running.push(server.name().to_owned());
        }
        for McpProblem { server, text } in &self.problems {
            if !running.contains(server) {
                let text = text.replace('\n', "\n  ");
                lines.extend(format!("{server}: not started: {text}").lines().map(str::to_owned));
            }
        }
        lines
    }

    fn problems_of(&self, server: &str) -> impl Iterator<Item = &str> {
        self.problems.iter().filter(move |it| it.server == server).map(|it| it.text.as_str())
    }

    /// Calls the tool `name`, which is a name of [`McpServers::tools`], and waits for the answer.
    /// Meanwhile `is_cancelled` is asked, at least every 100 ms. A server that has ended before is
    /// started again, once in a session.
    ///
    /// # Errors
    ///
    /// If the call is cancelled or has no answer in time, or the server refuses it or has ended. An
    /// error of the tool itself is an answer.
    pub fn call(
        &mut self,
        name: &str,
        arguments: &Value,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<McpAnswer, McpError> {
        let unknown = || McpError::UnknownTool(name.to_owned());
        let number = self.tools.iter().position(|tool| tool.name == name).ok_or_else(unknown)?;
        let place = *self.places.get(number).ok_or_else(unknown)?;
        let server = Arc::clone(self.servers.get(place.server).ok_or_else(unknown)?);
        let runtime = self.runtime.as_ref().ok_or_else(unknown)?;
        let (set_stop, stop) = StopSignal::new();
        let (sender, answers) = mpsc::channel();
        let arguments = arguments.clone();
        runtime.spawn(async move {
            let answer = server.lock().await.call(place.index, arguments, &stop).await;
            let _ = sender.send(answer);
        });
        next_result(&answers, &set_stop, is_cancelled).unwrap_or_else(|| {
            let (server, problem) = (self.tools[number].server.clone(), "no answer".to_owned());
            Err(McpError::Failed { server, problem })
        })
    }
}

impl McpServers {
    /// Ends the processes that are confined. The next call of a tool starts its server again, in
    /// the sandbox that the context has then.
    pub fn rest(&mut self) {
        if let Some(runtime) = &self.runtime {
            self.end_all(runtime, true);
        }
    }

    /// Ends all servers at the same time, for good or only what is to rest, and waits for it.
    fn end_all(&self, runtime: &Runtime, is_rest: bool) {
        let (sender, ended) = mpsc::channel::<()>();
        for server in &self.servers {
            let (server, sender) = (Arc::clone(server), sender.clone());
            runtime.spawn(async move {
                {
                    let mut server = server.lock().await;
                    match is_rest {
                        true => server.rest().await,
                        false => server.end().await,
                    }
                }
                drop(sender);
            });
        }
        drop(sender);
        // The channel closes when the last server has ended.
        let _ = ended.recv_timeout(self.end);
    }
}

impl Drop for McpServers {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        self.end_all(&runtime, false);
        // Does not wait, since the caller may belong to a runtime itself.
        runtime.shutdown_background();
    }
}
