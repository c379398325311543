//! Which files a confined process may read and write: lists, without any system call of Landlock.
//!
//! Invariant: a folder that holds the home folder is never on a list.

use std::path::{Path, PathBuf};

use crate::confinement::Confinement;
use crate::environment::says_secret;
use crate::error::ConfineError;
use crate::user::UserFolders;

/// Existing files and folders, each with its kind of access.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Paths {
    /// Read, written, created and removed; programs in them are executed.
    pub write: Vec<PathBuf>,
    /// Read, and programs in them are executed.
    pub execute: Vec<PathBuf>,
    /// Read.
    pub read: Vec<PathBuf>,
    /// Devices that are read.
    pub devices: Vec<PathBuf>,
}

/// The lists for `confinement`.
pub(crate) fn paths(confinement: &Confinement) -> Result<Paths, ConfineError> {
    let home = confinement.user.home.as_deref().map(resolved);
    let folders = [&confinement.workspace, &confinement.temporary];
    let folders = folders.into_iter().chain(&confinement.kept);
    if let Some(path) = folders.clone().find(|path| !path.is_dir()) {
        return Err(ConfineError::NotAFolder { path: path.clone() });
    }
    let named = folders.chain(&confinement.write).chain(&confinement.read);
    for path in named {
        if holds(&resolved(path), home.as_deref()) {
            return Err(ConfineError::TooWide { path: path.clone() });
        }
    }
    let mut paths = implied(&confinement.user, home.as_deref());
    paths.write.extend(confinement.commands_write());
    paths.write.extend(confinement.kept.clone());
    paths.execute.extend(confinement.read.iter().cloned());
    if confinement.read_only {
        paths.execute.push(confinement.workspace.clone());
        paths.execute.extend(confinement.write.iter().cloned());
    }
    Ok(paths)
}

/// Programs and libraries of the system. The last two are those of Nix and Guix, where the folders
/// of `PATH` hold links only.
const SYSTEM: [&str; 10] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix/store",
    "/gnu/store",
];

const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Of `/etc`: names of users, hosts and services, the loader, time, languages, public certificates
/// and what programs read at their start. Nothing with a password or a private key, which root may
/// read: neither `shadow` nor `ssl/private`.
const ETC: [&str; 41] = [
    "passwd",
    "group",
    "hosts",
    "host.conf",
    "hostname",
    "nsswitch.conf",
    "resolv.conf",
    "gai.conf",
    "services",
    "protocols",
    "networks",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ld.so.preload",
    "ld-musl-x86_64.path",
    "ld-musl-aarch64.path",
    "localtime",
    "timezone",
    "locale.conf",
    "locale.alias",
    "default/locale",
    "os-release",
    "lsb-release",
    "debian_version",
    "alpine-release",
    "redhat-release",
    "alternatives",
    "ssl/certs",
    "ssl/cert.pem",
    "ssl/openssl.cnf",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "pki/ca-trust",
    "crypto-policies",
    "mime.types",
    "magic",
    "terminfo",
    "inputrc",
    "fonts",
    "perl",
];

/// Of `/etc`, by their first letters, since names have versions: certificates, and what the folders
/// of Java and Python in `/usr` link to.
const ETC_BEGINNINGS: [&str; 3] = ["ca-certificates", "java-", "python3"];

/// Of Cargo's folder.
const CARGO: [&str; 3] = ["bin", "registry", "git"];

/// Of Cargo's folder, if they are free of secrets: Cargo ends on settings that it cannot read.
const CARGO_SETTINGS: [&str; 2] = ["config.toml", "config"];

/// Beside a folder `bin` of the search path: what its programs load. Not `share`, which has
/// passwords and histories in `~/.local`.
const OF_PROGRAMS: [&str; 5] = ["lib", "lib64", "libexec", "include", "pyvenv.cfg"];

fn implied(user: &UserFolders, home: Option<&Path>) -> Paths {
    let existing = |path: &PathBuf| path.is_absolute() && path.exists();
    let admitted = |path: &PathBuf| existing(path) && !holds(&resolved(path), home);
    let of_cargo = |name| user.cargo_home.as_ref().map(|folder| folder.join(name));
    let settings = CARGO_SETTINGS.into_iter().filter_map(of_cargo).filter(|path| is_public(path));
    let execute = SYSTEM.map(PathBuf::from).into_iter().chain(programs(user, home));
    let execute = execute.chain(CARGO.into_iter().filter_map(of_cargo));
    let etc = ETC.map(|name| Path::new("/etc").join(name)).into_iter().chain(versioned());
    Paths {
        write: Vec::new(),
        execute: execute.chain(user.rustup_home.clone()).filter(admitted).collect(),
        read: etc.chain(settings).chain(["/proc".into()]).filter(admitted).collect(),
        devices: DEVICES.map(PathBuf::from).into_iter().filter(existing).collect(),
    }
}

/// The folders of the search path with what belongs to them, except for that of a `bin` in the home
/// folder itself.
fn programs(user: &UserFolders, home: Option<&Path>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in user.search_path.iter().flat_map(std::env::split_paths) {
        let above = folder.parent().filter(|_| folder.ends_with("bin"));
        if let Some(above) = above.filter(|above| !holds(&resolved(above), home)) {
            found.extend(OF_PROGRAMS.map(|name| above.join(name)));
        }
        found.push(folder);
    }
    found
}

/// Whether a file of settings has no word that a secret is called by, and no address with a
/// password.
fn is_public(path: &Path) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| !says_secret(&text) && !text.contains('@'))
}

fn versioned() -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir("/etc").into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        ETC_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
    })
}

/// Whether `path` is the root, the home folder or above it. Both are without links.
fn holds(path: &Path, home: Option<&Path>) -> bool {
    path.parent().is_none() || home.is_some_and(|home| home.starts_with(path))
}

/// `path` without links; as it is if it does not exist.
fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(home: &Path, change: impl FnOnce(&mut Confinement)) -> Result<Paths, ConfineError> {
        let mut confinement = Confinement::new(home.join("work"), home.join("tmp"));
        confinement.user = UserFolders { home: Some(home.into()), ..UserFolders::default() };
        change(&mut confinement);
        paths(&confinement)
    }

    fn home() -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        for folder in ["work", "tmp", ".cargo/bin", ".cargo/registry", ".ssh"] {
            std::fs::create_dir_all(home.path().join(folder)).unwrap();
        }
        home
    }

    #[test]
    fn a_folder_that_holds_the_home_folder_is_refused_when_named_and_left_out_when_implied() {
        let (home, beside) = (home(), tempfile::tempdir().unwrap());
        let link = beside.path().join("link");
        #[cfg(unix)]
        std::os::unix::fs::symlink(home.path(), &link).unwrap();
        for wide in [Path::new("/"), home.path(), home.path().parent().unwrap(), &link] {
            let as_workspace = of(home.path(), |c| c.workspace = wide.into());
            assert!(matches!(as_workspace, Err(ConfineError::TooWide { .. })), "{wide:?}");
            let as_read = of(home.path(), |c| c.read = vec![wide.into()]);
            assert!(matches!(as_read, Err(ConfineError::TooWide { .. })), "{wide:?}");
            let lists = of(home.path(), |c| c.user.search_path = Some(wide.into())).unwrap();
            assert!(!lists.execute.iter().any(|path| path == wide), "{wide:?}");
        }
    }

    #[test]
    fn read_only_leaves_the_temporary_folder_writable() {
        let home = home();
        let lists = of(home.path(), |c| {
            c.read_only = true;
            c.write = vec![home.path().join("more")];
        })
        .unwrap();
        assert_eq!(lists.write, [home.path().join("tmp")]);
        assert!(lists.execute.contains(&home.path().join("work")));
        assert!(lists.execute.contains(&home.path().join("more")));
    }

    #[test]
    fn of_cargos_folder_only_programs_and_sources_are_read() {
        let home = home();
        std::fs::write(home.path().join(".cargo/credentials.toml"), "token").unwrap();
        let cargo = home.path().join(".cargo");
        let lists = of(home.path(), |c| c.user.cargo_home = Some(cargo.clone())).unwrap();
        let of_cargo: Vec<_> = lists.execute.iter().filter(|p| p.starts_with(&cargo)).collect();
        assert_eq!(of_cargo, [&cargo.join("bin"), &cargo.join("registry")]);
    }

    #[test]
    fn cargos_settings_are_read_unless_they_hold_a_secret() {
        let check = |settings: &str, expected: bool| {
            let home = home();
            let cargo = home.path().join(".cargo");
            std::fs::write(cargo.join("config.toml"), settings).unwrap();
            let lists = of(home.path(), |c| c.user.cargo_home = Some(cargo.clone())).unwrap();
            assert_eq!(lists.read.contains(&cargo.join("config.toml")), expected, "{settings}");
        };
        check("[build]\njobs = 2\n", true);
        check("[registry]\ntoken = \"x\"\n", false);
        check("[http]\nproxy = \"user:pass@proxy.example\"\n", false);
    }

    #[test]
    fn beside_bin_the_libraries_are_read_and_nothing_else() {
        let home = home();
        for folder in ["tool/bin", "tool/lib", "tool/share", "bin", "lib"] {
            std::fs::create_dir_all(home.path().join(folder)).unwrap();
        }
        let search_path = std::env::join_paths(["tool/bin", "bin"].map(|f| home.path().join(f)));
        let lists = of(home.path(), |c| c.user.search_path = search_path.ok()).unwrap();
        let inside: Vec<_> = lists.execute.iter().filter(|p| p.starts_with(home.path())).collect();
        let expected = ["tool/lib", "tool/bin", "bin", "work"].map(|name| home.path().join(name));
        let with_workspace = inside.into_iter().chain(&lists.write).filter(|p| !p.ends_with("tmp"));
        assert!(with_workspace.eq(&expected), "{lists:?}");
    }

    #[test]
    fn relative_folders_of_the_search_path_are_left_out() {
        let home = home();
        let lists = of(home.path(), |c| c.user.search_path = Some(".:src::..".into())).unwrap();
        assert!(lists.execute.iter().all(|path| path.is_absolute()));
    }

    #[test]
    fn a_workspace_that_does_not_exist_is_an_error_with_its_path() {
        let home = home();
        let error = of(home.path(), |c| c.workspace = home.path().join("none")).unwrap_err();
        assert!(error.to_string().ends_with("none: expected a folder"), "{error}");
    }

    #[test]
    fn no_list_has_a_password_or_a_key() {
        let home = home();
        let lists = of(home.path(), |_| ()).unwrap();
        for path in lists.read.iter().chain(&lists.execute) {
            for secret in ["/etc/shadow", "/etc/gshadow", "/etc/ssl/private", "/etc/ssh"] {
                assert!(!Path::new(secret).starts_with(path), "{path:?}");
            }
        }
    }
}
