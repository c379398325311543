//! The release that packages are made of: its version, time, binary and folder.
//!
//! Invariant: the binary is built, or read, at most once, and only for kinds that need it.

use super::tools::{output_of, set_mode};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package of the program.
pub(super) const PACKAGE: &str = "gannet-cli";

/// What the command line says.
#[derive(Debug, Default)]
pub(super) struct Options {
    /// A binary that is built already.
    pub binary: Option<PathBuf>,
    /// The target of the binary, where that is not this machine's.
    pub target: Option<String>,
    /// The folder of the packages.
    pub output: Option<PathBuf>,
    /// Where the files will be found, for kinds that download them.
    pub base_url: Option<String>,
}

/// One version of the program for one target.
#[derive(Debug)]
pub(super) struct Release {
    root: PathBuf,
    options: Options,
    output: PathBuf,
    pub version: String,
    pub target: String,
    /// Seconds since 1970: the time of everything in the packages.
    pub epoch: u64,
    binary: OnceCell<PathBuf>,
    metadata: OnceCell<Value>,
}

impl Release {
    /// The release of the workspace at `root`.
    pub fn new(root: &Path, options: Options) -> Result<Self> {
        let root = root.canonicalize().context("the folder of the workspace")?;
        let target = match &options.target {
            Some(target) => target.clone(),
            None => host()?,
        };
        let output = options.output.clone().unwrap_or_else(|| target_folder(&root).join("package"));
        std::fs::create_dir_all(&output)
            .with_context(|| format!("cannot create {}", output.display()))?;
        let output = output.canonicalize()?;
        let epoch = epoch(&root)?;
        let mut release = Self {
            root,
            options,
            output,
            version: String::new(),
            target,
            epoch,
            binary: OnceCell::new(),
            metadata: OnceCell::new(),
        };
        let version = release.member(PACKAGE)?["version"].as_str();
        release.version = version.context("cargo metadata: no version")?.to_owned();
        Ok(release)
    }

    /// The folder of the workspace.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of the packages.
    pub fn output(&self) -> &Path {
        &self.output
    }

    /// The name and version of archives: `gannet-0.1.0-x86_64-unknown-linux-gnu`.
    pub fn stem(&self) -> String {
        format!("gannet-{}-{}", self.version, self.target)
    }

    /// A file of the repository, as it is.
    pub fn file(&self, path: &str) -> Result<Vec<u8>> {
        std::fs::read(self.root.join(path)).with_context(|| format!("cannot read {path}"))
    }

    /// A text file of the repository with `@NAME@` replaced, for each pair of a name and a value.
    pub fn filled(&self, path: &str, values: &[(&str, &str)]) -> Result<String> {
        let text = String::from_utf8(self.file(path)?).with_context(|| path.to_owned())?;
        let fill =
            |text: String, (name, value): &(&str, &str)| text.replace(&format!("@{name}@"), value);
        Ok(values.iter().fold(text, fill))
    }

    /// Writes a file of the packages.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.output.join(name);
        std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Writes a file of the packages that is run.
    pub fn write_program(&self, name: &str, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.write(name, bytes)?;
        set_mode(&path, 0o755)?;
        Ok(path)
    }

    /// Where the files of this release are downloaded from: the folder itself, unless
    /// `--base-url` names a server.
    pub fn base_url(&self) -> String {
        let local = || format!("file://{}", self.output.display());
        let url = self.options.base_url.clone().unwrap_or_else(local);
        url.trim_end_matches('/').to_owned()
    }

    /// What `cargo metadata` says of the workspace and its dependencies on this target.
    pub fn metadata(&self) -> Result<&Value> {
        if let Some(metadata) = self.metadata.get() {
            return Ok(metadata);
        }
        let mut cargo = self.cargo();
        cargo.args(["metadata", "--format-version", "1", "--locked", "--filter-platform"]);
        let text = output_of(cargo.arg(&self.target))?;
        let metadata = serde_json::from_str(&text).context("cargo metadata")?;
        Ok(self.metadata.get_or_init(|| metadata))
    }

    /// What `cargo metadata` says of a package of the workspace.
    pub fn member(&self, name: &str) -> Result<&Value> {
        let packages = self.metadata()?["packages"].as_array().context("cargo metadata")?;
        let found = packages.iter().find(|it| it["name"] == name && it["source"].is_null());
        found.with_context(|| format!("cargo metadata: no package {name}"))
    }

    /// The binary: the one that was named, or one built with the profile `dist`.
    pub fn binary(&self) -> Result<&Path> {
        if let Some(binary) = self.binary.get() {
            return Ok(binary);
        }
        let binary = match &self.options.binary {
            Some(binary) => std::path::absolute(binary)?,
            None => self.build()?,
        };
        let said = output_of(Command::new(&binary).arg("--version"))?;
        let expected = format!("gannet {}", self.version);
        if said.trim() != expected {
            bail!("{}: expected {expected}, found {}", binary.display(), said.trim());
        }
        Ok(self.binary.get_or_init(|| binary))
    }

    /// The bytes of the binary.
    pub fn binary_bytes(&self) -> Result<Vec<u8>> {
        let binary = self.binary()?;
        std::fs::read(binary).with_context(|| format!("cannot read {}", binary.display()))
    }

    /// What a command of the binary prints, without the settings of this machine.
    pub fn printed(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(self.binary()?);
        let variables = std::env::vars_os().map(|(name, _)| name);
        for name in variables.filter(|name| name.to_string_lossy().starts_with("GANNET_")) {
            command.env_remove(name);
        }
        output_of(command.args(args).current_dir(&self.output).env("XDG_CONFIG_HOME", "/nowhere"))
    }

    fn cargo(&self) -> Command {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(&self.root).env("SOURCE_DATE_EPOCH", self.epoch.to_string());
        cargo
    }

    fn build(&self) -> Result<PathBuf> {
        let mut cargo = self.cargo();
        cargo.args(["build", "--quiet", "--locked", "--profile", "dist", "-p", PACKAGE]);
        let mut folder = target_folder(&self.root);
        if let Some(target) = &self.options.target {
            cargo.args(["--target", target]);
            folder.push(target);
        }
        let remapped = self.remapped_paths()?;
        let rust = remapped.iter().map(|(from, to)| format!("--remap-path-prefix={from}={to}"));
        let c = remapped.iter().map(|(from, to)| format!("-ffile-prefix-map={from}={to}"));
        cargo.env("CARGO_ENCODED_RUSTFLAGS", rust.collect::<Vec<_>>().join("\x1f"));
        cargo.env("CFLAGS", c.collect::<Vec<_>>().join(" "));
        output_of(&mut cargo)?;
        Ok(folder.join("dist/gannet"))
    }

    /// Folders of this machine, and what the binary calls them.
    fn remapped_paths(&self) -> Result<Vec<(String, &'static str)>> {
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let default = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"));
        let home = home.or_else(default).context("expected CARGO_HOME or HOME, found neither")?;
        Ok(vec![
            (self.root.display().to_string(), "/gannet"),
            (home.display().to_string(), "/cargo"),
        ])
    }
}

/// The folder of what cargo builds.
fn target_folder(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// The target of this machine.
fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = output_of(Command::new(rustc).arg("-vV"))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV: no host")?.to_owned())
}

/// `SOURCE_DATE_EPOCH`, or the time of the last commit.
fn epoch(root: &Path) -> Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => {
            let mut git = Command::new("git");
            output_of(git.current_dir(root).args(["log", "-1", "--format=%ct"]))?
        }
    };
    let expected = || format!("expected seconds since 1970 in SOURCE_DATE_EPOCH, found {text:?}");
    text.trim().parse().with_context(expected)
}
