//! The process of the tools, by the arguments of the command.

use super::mcp;
use crate::folders;
use crate::output::note;
use crate::settings::McpSetting;
use agent::{HostProcess, HostSettings, OtherTools, Sandbox, ToolFolders};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Arguments for the tools.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Tools")]
pub(super) struct ToolArgs {
    /// Folder to work in
    #[arg(short = 'C', long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// What the tools may write: workspace (the folder), read-only (nothing), or off (anything:
    /// they are not confined)
    #[arg(long, value_name = "HOW", value_parser = sandbox, default_value = "workspace")]
    sandbox: Sandbox,
    /// Let commands use the internet
    #[arg(long)]
    net: bool,
    /// Let the tools read this folder or file too; may be repeated
    #[arg(long, value_name = "DIR")]
    read: Vec<PathBuf>,
    /// Let the tools write in this folder too; may be repeated
    #[arg(long, value_name = "DIR")]
    write: Vec<PathBuf>,
}

/// How a process starts that confines itself.
type Launch = (PathBuf, HostSettings, Vec<(OsString, OsString)>);

fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("--dir, --read or --write {}", path.display()))
}

/// An error if the folder of the user's settings or state holds or is in `path`, which the tools
/// may write: what they wrote there would decide what later ones may do.
fn check_apart(flag: &str, path: &Path) -> Result<()> {
    for folder in [folders::config(), folders::state()].into_iter().flatten() {
        if folders::overlap(&folder, path) {
            bail!(
                "{flag} {}: expected a folder apart from {}, which has settings and sessions",
                path.display(),
                folder.display()
            );
        }
    }
    Ok(())
}

/// The sandbox of this name.
///
/// # Errors
///
/// If there is none.
pub(super) fn sandbox(text: &str) -> Result<Sandbox, String> {
    match text {
        "workspace" => Ok(Sandbox::Workspace),
        "read-only" => Ok(Sandbox::ReadOnly),
        "off" => Ok(Sandbox::Off),
        _ => Err(format!("expected workspace, read-only or off, found {text}")),
    }
}

impl ToolArgs {
    /// How the tools are confined, in words.
    pub fn sandbox(&self) -> &'static str {
        match (self.sandbox, self.net) {
            (Sandbox::Off, _) => "no sandbox",
            (Sandbox::ReadOnly, false) => "read-only",
            (Sandbox::ReadOnly, true) => "read-only, network",
            (Sandbox::Workspace, false) => "workspace",
            (Sandbox::Workspace, true) => "workspace, network",
        }
    }

    /// The same tools in another folder.
    pub fn at(&self, dir: &Path) -> Self {
        Self { dir: dir.to_owned(), ..self.clone() }
    }

    /// The same tools as this machine confines them. Where it cannot, each call is outside, which
    /// is said; without files to be written there is nothing instead.
    pub fn on_this_machine(&self) -> Self {
        match confine::support() {
            Err(missing) if self.sandbox == Sandbox::Workspace => {
                note(format_args!("nothing is confined here ({missing}): each call is outside"));
                self.with_sandbox(Sandbox::Off)
            }
            _ => self.clone(),
        }
    }

    /// The same tools, confined in this way.
    pub fn with_sandbox(&self, sandbox: Sandbox) -> Self {
        Self { sandbox, ..self.clone() }
    }

    /// The same tools where nothing is written, neither here nor on the internet. Unconfined ones
    /// stay so, and what they write is for the policy to refuse.
    pub fn in_plan(&self) -> Self {
        match self.sandbox {
            Sandbox::Off => self.clone(),
            _ => Self { sandbox: Sandbox::ReadOnly, net: false, ..self.clone() },
        }
    }

    /// Whether the tools may change files of the folder.
    pub fn may_write(&self) -> bool {
        self.sandbox != Sandbox::ReadOnly
    }

    /// Confines the processes of other tools as these.
    pub fn confine(&self, others: &mut [Box<dyn OtherTools>]) {
        others.iter_mut().for_each(|others| others.confine(self.sandbox));
    }

    /// Whether the tools are confined.
    pub fn is_confined(&self) -> bool {
        self.sandbox != Sandbox::Off
    }

    /// The folder to work in, without links.
    ///
    /// # Errors
    ///
    /// If there is none, or it is `/` or the home folder, or has settings of the user.
    pub fn workspace(&self) -> Result<PathBuf> {
        let workspace = absolute(&self.dir)?;
        if !workspace.is_dir() {
            bail!("--dir {}: expected a folder, found a file", workspace.display());
        }
        let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
        if workspace.parent().is_none() || Some(&workspace) == home.as_ref() {
            bail!("--dir {}: expected another folder than / and the home", workspace.display());
        }
        check_apart("--dir", &workspace)?;
        Ok(workspace)
    }

    /// The folders in which the tools may write, without links.
    ///
    /// # Errors
    ///
    /// If there is none, or one has settings of the user.
    pub fn writable(&self) -> Result<Vec<PathBuf>> {
        let write = self.write.iter().map(|path| {
            let path = absolute(path)?;
            check_apart("--write", &path)?;
            Ok(path)
        });
        std::iter::once(self.workspace()).chain(write).collect()
    }

    /// Starts the process of the tools, with these folders for what is temporary.
    ///
    /// # Errors
    ///
    /// If a folder is missing, or the process cannot be confined.
    pub fn start(&self, folders: &ToolFolders) -> Result<HostProcess> {
        let (program, settings, environment) = self.launch(folders)?;
        let settings = HostSettings { kept: Some(folders.kept()), ..settings };
        let host = HostProcess::start(&program, &settings, environment);
        host.context("--sandbox off works without, and asks before every call")
    }

    /// Starts the MCP servers of `mcp`, if there are some. `is_cancelled` is asked meanwhile.
    ///
    /// # Errors
    ///
    /// If a folder is missing, or the setting is none of servers.
    pub fn start_servers(
        &self,
        mcp: Option<&McpSetting>,
        folders: &ToolFolders,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<Box<dyn OtherTools>>> {
        let (program, settings, environment) = self.launch(folders)?;
        mcp::start(mcp, (&program, &settings), environment, is_cancelled)
    }

    fn launch(&self, folders: &ToolFolders) -> Result<Launch> {
        let read = self.read.iter().map(|path| absolute(path));
        let read = read.chain([Ok(folders.root().to_owned())]).collect::<Result<_>>()?;
        let (git, temporary) = (folders.git_config(), folders.temporary());
        std::fs::write(&git, confine::git_identity("gannet agent", "agent@localhost"))?;
        let environment = confine::environment(std::env::vars_os(), &temporary, &git);
        let mut write = self.writable()?;
        // What is temporary could be replaced otherwise.
        if write.iter().any(|folder| folders.root().starts_with(folder)) {
            let root = folders.root().display();
            bail!("TMPDIR: expected a folder that the tools do not write, found {root}");
        }
        let settings = HostSettings {
            workspace: write.remove(0),
            temporary,
            kept: None,
            write,
            read,
            sandbox: self.sandbox,
            net: self.net,
            command: Vec::new(),
        };
        let program = std::env::current_exe().context("the program's own path")?;
        Ok((program, settings, environment))
    }

    /// What the first message says of the place.
    pub fn place(&self) -> Result<String> {
        let (folder, system) = (self.workspace()?, std::env::consts::OS);
        let date = chrono::Local::now().format("%A, %-d %B %Y");
        Ok(format!("The folder is {} on {system}. It is {date}.", folder.display()))
    }
}
