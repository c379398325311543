//! Talks to `gannet agent --acp` through the public client of the protocol.

mod model;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CancelNotification, ContentBlock, InitializeRequest, LoadSessionRequest, NewSessionRequest,
    PermissionOptionKind, PromptRequest, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, SelectedPermissionOutcome, SessionId, SessionNotification,
    SessionUpdate, SetSessionModeRequest, StopReason, TextContent, ToolCallContent, ToolCallStatus,
    ToolKind,
};
use agent_client_protocol::{AcpAgent, AcpAgentConfig, Agent, Client, Error};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The updates that have come.
type Updates = Arc<Mutex<Vec<SessionUpdate>>>;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let program = std::env::args().nth(1).expect("the path of gannet");
    let program = PathBuf::from(program).canonicalize().expect("the program");
    let folder = tempfile::tempdir().expect("a folder");
    let work = folder.path().join("work");
    std::fs::create_dir(&work).expect("a workspace");
    let work = work.canonicalize().expect("a workspace");
    std::fs::write(work.join("a.txt"), "one\ntwo\n").expect("a file");
    let state = folder.path().join("state").to_string_lossy().into_owned();
    let url = model::serve();
    let args = ["agent", "--acp", "--url", &url, "--state-dir", &state];
    let agent = || AcpAgent::new(AcpAgentConfig::new(&program).args(args));
    let updates = Updates::default();
    let session = run(agent(), &updates, async |connection: &ConnectionTo<Agent>| {
        first(connection, &work, &updates).await
    });
    let session = session.await?;
    run(agent(), &updates, async |connection: &ConnectionTo<Agent>| {
        second(connection, &work, &updates, session.clone()).await
    })
    .await?;
    println!("all is as the protocol has it");
    Ok(())
}

/// Connects to an agent, allows what it asks for, and keeps the updates.
async fn run<T>(
    agent: AcpAgent,
    updates: &Updates,
    act: impl AsyncFnOnce(&ConnectionTo<Agent>) -> Result<T, Error>,
) -> Result<T, Error> {
    let kept = Arc::clone(updates);
    Client
        .v1()
        .on_receive_notification(
            async move |notification: SessionNotification, _| {
                kept.lock().expect("no panic").push(notification.update);
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest, responder, _| {
                let is_once = |kind| kind == PermissionOptionKind::AllowOnce;
                let once = request.options.iter().find(|option| is_once(option.kind));
                let id = once.expect("an option that allows once").option_id.clone();
                let outcome =
                    RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(id));
                responder.respond(RequestPermissionResponse::new(outcome))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_with(agent, async |connection: ConnectionTo<Agent>| {
            let initialize = InitializeRequest::new(ProtocolVersion::V1);
            let initialized = connection.send_request(initialize).block_task().await?;
            assert_eq!(initialized.protocol_version, ProtocolVersion::V1);
            let capabilities = initialized.agent_capabilities;
            assert!(capabilities.load_session);
            assert!(capabilities.prompt_capabilities.embedded_context);
            assert!(capabilities.session_capabilities.close.is_some());
            assert_eq!(initialized.agent_info.map(|info| info.name).as_deref(), Some("gannet"));
            act(&connection).await
        })
        .await
}

fn prompt(session: &SessionId, text: &str) -> PromptRequest {
    let text = ContentBlock::Text(TextContent::new(text));
    PromptRequest::new(session.clone(), vec![text])
}

/// The texts of the updates and the kinds of the others.
fn shown(updates: &Updates) -> Vec<String> {
    let text = |content: &ContentBlock| match content {
        ContentBlock::Text(text) => text.text.clone(),
        other => format!("{other:?}"),
    };
    let shown = |update: &SessionUpdate| match update {
        SessionUpdate::UserMessageChunk(chunk) => format!("user {}", text(&chunk.content)),
        SessionUpdate::AgentMessageChunk(chunk) => format!("text {}", text(&chunk.content)),
        SessionUpdate::AgentThoughtChunk(chunk) => format!("thought {}", text(&chunk.content)),
        SessionUpdate::ToolCall(call) => format!("call {} {:?}", call.title, call.kind),
        SessionUpdate::ToolCallUpdate(call) => format!("update {:?}", call.fields.status),
        SessionUpdate::CurrentModeUpdate(update) => format!("mode {}", update.current_mode_id),
        other => format!("{other:?}"),
    };
    std::mem::take(&mut *updates.lock().expect("no panic")).iter().map(shown).collect()
}

async fn first(
    connection: &ConnectionTo<Agent>,
    work: &Path,
    updates: &Updates,
) -> Result<SessionId, Error> {
    let opened = connection.send_request(NewSessionRequest::new(work)).block_task().await?;
    let modes = opened.modes.expect("modes");
    assert_eq!((&*modes.current_mode_id.0, modes.available_modes.len()), ("outside", 5));
    let session = opened.session_id;
    let mode = SetSessionModeRequest::new(session.clone(), "writes");
    connection.send_request(mode).block_task().await?;
    let done = connection.send_request(prompt(&session, "change it")).block_task().await?;
    assert_eq!(done.stop_reason, StopReason::EndTurn);
    let edit = updates.lock().expect("no panic").iter().find_map(|update| match update {
        SessionUpdate::ToolCallUpdate(call) => {
            let content = call.fields.content.clone()?;
            Some((call.fields.status, content))
        }
        _ => None,
    });
    let (status, content) = edit.expect("a result");
    assert_eq!(status, Some(ToolCallStatus::Completed));
    let [ToolCallContent::Diff(diff)] = &content[..] else { panic!("{content:?}") };
    assert_eq!(diff.path, work.join("a.txt"));
    assert_eq!(diff.old_text.as_deref(), Some("one\ntwo\n"));
    assert_eq!(diff.new_text, "one\n2\n");
    let expected = [
        "mode writes".to_owned(),
        "thought hm".to_owned(),
        "text I change it.".to_owned(),
        format!("call edit a.txt {:?}", ToolKind::Edit),
        "update Some(InProgress)".to_owned(),
        "update Some(Completed)".to_owned(),
        "text done".to_owned(),
    ];
    assert_eq!(shown(updates), expected);
    let slow = connection.send_request(prompt(&session, "slow"));
    let cancel = CancelNotification::new(session.clone());
    connection.send_notification(cancel)?;
    assert_eq!(slow.block_task().await?.stop_reason, StopReason::Cancelled);
    shown(updates);
    Ok(session)
}

async fn second(
    connection: &ConnectionTo<Agent>,
    work: &Path,
    updates: &Updates,
    session: SessionId,
) -> Result<(), Error> {
    let load = LoadSessionRequest::new(session.clone(), work);
    let loaded = connection.send_request(load).block_task().await?;
    assert_eq!(loaded.modes.expect("modes").available_modes.len(), 5);
    let shown_again = shown(updates);
    assert_eq!(shown_again[..3], ["user change it", "thought hm", "text I change it."]);
    assert_eq!(shown_again[5..], ["text done", "user slow"]);
    let unknown = LoadSessionRequest::new("unknown", work);
    assert!(connection.send_request(unknown).block_task().await.is_err());
    let done = connection.send_request(prompt(&session, "again")).block_task().await?;
    assert_eq!(done.stop_reason, StopReason::EndTurn);
    Ok(())
}
