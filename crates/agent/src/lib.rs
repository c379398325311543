//! The coding agent: the loop of answers and calls, the tools that a confined process has, and what
//! is asked, written down and taken back.
//!
//! - [`Agent`] works on requests with an [`AgentModel`], in this process or on a server.
//! - [`ToolWorkspace`] is the folder that the tools work in, with its jobs and the lines shown.
//! - [`TOOLS`] is the table of the tools: for each its schema, and what it does.
//! - [`Guard`] holds the files that others run later, and undoes changes of them.
//! - [`Host`] carries out requests that come as lines of JSON.
//! - [`SessionLog`] holds what happened in a session, [`AllowRule`] what is allowed without a
//!   question.
//!
//! Invariant: nothing here knows terminals. The agent's process touches no file of the workspace;
//! the kernel decides what the tools may reach, so that links and races change nothing.

mod agent_loop;
mod carry_out;
mod command_shell;
mod compaction;
mod difference;
mod error;
mod fetch;
mod fetch_tool;
mod file_change;
mod files;
mod final_result;
mod guarded;
mod guarded_change;
mod guarded_links;
mod guarded_names;
mod guarded_trees;
mod host;
mod host_process;
mod host_settings;
mod interrupt;
mod jobs;
mod kept_files;
mod known_facts;
mod limits;
mod mcp;
mod mcp_tools;
mod message_json;
mod model;
mod open_folders;
mod orphans;
mod other_tools;
mod policy;
mod printable;
mod remote_model;
mod replace;
mod request;
mod request_history;
mod resumed;
mod rules;
mod schema;
mod schema_fault;
mod session;
mod session_log;
mod shown;
mod text_file;
mod token_count;
mod tool;
mod tool_folders;
mod tool_host;
mod tool_result;
mod tools;
mod tree_state;
mod undo;
mod user;
mod watcher;
mod worked_request;
mod workspace;

pub use agent_loop::{Agent, AgentError, WorkEnd, agent_tools};
pub use command_shell::CommandShell;
pub use difference::difference;
pub use error::ToolError;
pub use fetch_tool::FetchTool;
pub use file_change::{FileChange, FileContent};
pub use final_result::FinalResult;
pub use guarded::Guard;
pub use guarded_change::GuardedChange;
pub use host::Host;
pub use host_process::{HostError, HostProcess};
pub use host_settings::{HostSettings, HostStart, Sandbox, TOOL_HOST};
pub use interrupt::Interrupt;
pub use known_facts::KnownFacts;
pub use limits::{WorkLimits, has_come};
pub use mcp::{McpCommand, McpServerSettings, McpSettings};
pub use mcp_tools::McpTools;
pub use model::{AgentModel, AnswerStart, LocalModel};
pub use other_tools::OtherTools;
pub use policy::{CONFIRMS, CallReach, Confirm, Decision, Policy};
pub use printable::printable;
pub use remote_model::RemoteModel;
pub use request::{GuardedReport, ToolAnswer, ToolRequest};
pub use resumed::ResumedSession;
pub use rules::{AllowRule, RuleSubject};
pub use schema_fault::{schema_fault, unchecked_word};
pub use session::AgentSession;
pub use session_log::{LogError, LoggedTokens, Record, SessionLog, first_record, read_log};
pub use tool::{Tool, ToolOutput};
pub use tool_folders::ToolFolders;
pub use tool_host::serve_tools;
pub use tool_result::MAX_RESULT_BYTES;
pub use tools::TOOLS;
pub use undo::Undone;
pub use user::{AgentEvent, AgentUser, Compacted, Question, Reply};
pub use worked_request::WorkedRequest;
pub use workspace::ToolWorkspace;
