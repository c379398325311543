//! The folders, files, processes and sockets that attempts are about.

use std::fs;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use confine::{Confinement, Network, UserFolders};

/// Where programs of the system are.
pub const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The folders: a home with a key and a file, a workspace, a temporary folder.
pub struct Scene {
    pub base: PathBuf,
}

impl Scene {
    pub fn at(base: impl Into<PathBuf>) -> Scene {
        Scene { base: base.into() }
    }

    pub fn key(&self) -> PathBuf {
        self.base.join("home/.ssh/id_ed25519")
    }

    /// A file of the user outside the workspace.
    pub fn victim(&self) -> PathBuf {
        self.base.join("home/victim")
    }

    pub fn workspace(&self) -> PathBuf {
        self.base.join("workspace")
    }

    pub fn temporary(&self) -> PathBuf {
        self.base.join("tmp")
    }

    pub fn confinement(&self) -> Confinement {
        let home = self.base.join("home");
        let mut confinement = Confinement::new(self.workspace(), self.temporary());
        confinement.user = UserFolders {
            cargo_home: Some(home.join(".cargo")),
            rustup_home: Some(home.join(".rustup")),
            home: Some(home),
            search_path: Some(PATH.into()),
        };
        // This program, and the compiler that built it, are outside.
        let toolchain = std::env::var_os("CONFINE_TOOLCHAIN").map(PathBuf::from);
        confinement.read = std::env::current_exe().into_iter().chain(toolchain).collect();
        confinement
    }

    pub fn confinement_with(&self, network: Network) -> Confinement {
        Confinement { network, ..self.confinement() }
    }

    /// Makes the folders and files, all of them `user`'s.
    fn make(&self, user: Option<u32>) {
        for folder in ["home/.ssh", "home/bin", "home/.cargo", "workspace/within", "tmp", "outside"]
        {
            fs::create_dir_all(self.base.join(folder)).unwrap();
        }
        let texts = ["home/.ssh/id_ed25519", "home/victim", "workspace/own"];
        for text in texts {
            fs::write(self.base.join(text), "text").unwrap();
        }
        fs::write(self.base.join("home/.cargo/config.toml"), "").unwrap();
        let identity = confine::git_identity("A \"B\" # C", "a@b.example");
        fs::write(self.temporary().join("git"), identity).unwrap();
        fs::copy("/bin/true", self.base.join("home/bin/tool")).unwrap();
        symlink("../home", self.workspace().join("link")).unwrap();
        let sealed = self.workspace().join("sealed");
        fs::write(&sealed, "another user's").unwrap();
        if let Some(user) = user {
            give(&self.base, user);
        }
        fs::set_permissions(&sealed, fs::Permissions::from_mode(0o000)).unwrap();
    }
}

fn give(path: &Path, user: u32) {
    chown(path, Some(user), Some(user)).unwrap();
    if path.is_dir() && !path.is_symlink() {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if !path.is_symlink() {
                give(&path, user);
            }
        }
    }
}

/// What is outside besides files: a process of the user, sockets and an open file.
pub struct Outside {
    pub scene: Scene,
    pub process: Child,
    pub abstract_name: String,
    pub port: u16,
    /// Open without the flag that closes it in children.
    pub open: fs::File,
    _folder: tempfile::TempDir,
    _sockets: (UnixListener, UnixDatagram, UnixListener, TcpListener),
}

impl Outside {
    pub fn new(user: Option<u32>) -> Outside {
        let folder = tempfile::Builder::new().prefix("confine").tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let scene = Scene::at(folder.path());
        scene.make(user);
        let abstract_name = folder.path().display().to_string();
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let sockets = (
            UnixListener::bind(scene.base.join("outside/stream")).unwrap(),
            UnixDatagram::bind(scene.base.join("outside/datagram")).unwrap(),
            UnixListener::bind_addr(&address).unwrap(),
            TcpListener::bind("127.0.0.1:0").unwrap(),
        );
        for name in ["stream", "datagram"] {
            let path = scene.base.join("outside").join(name);
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        let open = fs::File::open(scene.victim()).unwrap();
        rustix::io::fcntl_setfd(&open, rustix::io::FdFlags::empty()).unwrap();
        Outside {
            process: sleep(&scene, user),
            abstract_name,
            port: sockets.3.local_addr().unwrap().port(),
            open,
            scene,
            _folder: folder,
            _sockets: sockets,
        }
    }

    /// The variables by which an attempt finds all of it.
    pub fn variables(&self) -> [(&'static str, String); 6] {
        let cargo = std::env::var("CARGO").unwrap_or_default();
        let toolchain = Path::new(&cargo).ancestors().nth(2).unwrap_or(Path::new(""));
        [
            ("CONFINE_TOOLCHAIN", toolchain.display().to_string()),
            ("CONFINE_SCENE", self.scene.base.display().to_string()),
            ("CONFINE_OUTSIDE", self.process.id().to_string()),
            ("CONFINE_ABSTRACT", self.abstract_name.clone()),
            ("CONFINE_PORT", self.port.to_string()),
            ("CONFINE_OPEN", self.open.as_raw_fd().to_string()),
        ]
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// A process with a secret in its environment and a pipe as input.
fn sleep(scene: &Scene, user: Option<u32>) -> Child {
    let mut command = as_user("sleep", user);
    command.arg("600").env("SECRET", "outside").current_dir(&scene.base);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

/// A command that runs as `user`, with little in its environment.
pub fn as_user(program: impl AsRef<std::ffi::OsStr>, user: Option<u32>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", PATH);
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command
}
