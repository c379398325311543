use super::*;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Held while packages of Linux are made, which are laid out in one place.
static TREE: Mutex<()> = Mutex::new(());

/// A program that does what packages ask of the binary.
const STAND_IN: &str = r#"#!/bin/sh
case $1 in
    --version) echo "gannet @VERSION@" ;;
    completions) echo "completions of $2" ;;
    man) mkdir -p "$2" && for page in gannet gannet-serve; do echo ".TH $page 1" > "$2/$page.1"; done ;;
    *) exit 2 ;;
esac
"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// The real binary if `GANNET_BIN` names one that has all commands, else a stand-in in `folder`.
fn binary(folder: &Path) -> PathBuf {
    let real = std::env::var_os("GANNET_BIN").map(PathBuf::from);
    let has_all = |binary: &PathBuf| {
        let asked = Command::new(binary).args(["man", "--help"]).output();
        asked.is_ok_and(|output| output.status.success())
    };
    if let Some(real) = real.filter(has_all) {
        return root().join(real);
    }
    let path = folder.join("gannet");
    let release = Release::new(
        &root(),
        Options { output: Some(folder.join("unused")), ..Options::default() },
    );
    let script = STAND_IN.replace("@VERSION@", &release.unwrap().version);
    std::fs::write(&path, script).unwrap();
    tools::set_mode(&path, 0o755).unwrap();
    path
}

/// Makes packages in a new folder below `folder`.
fn package(folder: &Path, name: &str, kinds: &[&str]) -> PathBuf {
    let output = folder.join(name);
    let binary = binary(folder);
    let options = [
        ("--binary", binary.to_str().unwrap()),
        ("--output", output.to_str().unwrap()),
        ("--base-url", "https://files.example/gannet/"),
    ];
    let options = options.iter().flat_map(|(name, value)| [*name, *value]);
    let args: Vec<String> = kinds.iter().copied().chain(options).map(str::to_owned).collect();
    run(&root(), &args).unwrap();
    output
}

fn bytes_of(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let names = sums::files(folder).unwrap().into_iter();
    names.map(|name| (name.clone(), std::fs::read(folder.join(name)).unwrap())).collect()
}

#[track_caller]
fn check_twice_alike(kinds: &[&str], expected: usize) {
    let folder = tempfile::tempdir().unwrap();
    let one = bytes_of(&package(folder.path(), "one", kinds));
    // Times of files have seconds.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let other = bytes_of(&package(folder.path(), "other", kinds));
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    assert_eq!(one.len(), expected, "{:?}", one.keys());
    for (name, bytes) in &one {
        assert!(*bytes == other[name], "{name} differs");
    }
}

#[test]
fn packages_build_twice_alike() {
    // The archive and its installer, two packages of npm, and the sums are two of each but one.
    check_twice_alike(&["tar", "npm", "container", "brew", "nix", "kube"], 9);
}

#[test]
fn packages_of_linux_build_twice_alike() {
    let _tree = TREE.lock().unwrap_or_else(PoisonError::into_inner);
    for (kind, tool) in [("deb", "cargo-deb"), ("rpm", "cargo-generate-rpm")] {
        match tools::installed(&root(), tool, "") {
            Ok(_) if cfg!(target_os = "linux") => check_twice_alike(&[kind], 2),
            _ => say(&format!("skipped: {kind}: no {tool}")),
        }
    }
}

#[test]
fn a_debian_package_keeps_settings_and_starts_nothing() {
    let is_there = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    if tools::installed(&root(), "cargo-deb", "").is_err() || !is_there("dpkg-deb") {
        say(
            "skipped: a_debian_package_keeps_settings_and_starts_nothing: no cargo-deb or dpkg-deb",
        );
        return;
    }
    let _tree = TREE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let output = package(folder.path(), "files", &["deb"]);
    let name = sums::files(&output).unwrap().into_iter().find(|name| name.ends_with(".deb"));
    let unpacked = folder.path().join("unpacked");
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.arg("--raw-extract").arg(output.join(name.unwrap())).arg(&unpacked);
    assert!(dpkg.status().unwrap().success());
    let read = |path: &str| std::fs::read_to_string(unpacked.join(path)).expect(path);
    assert_eq!(read("DEBIAN/conffiles"), "/etc/gannet/gannet.yaml\n");
    let unit = "usr/lib/systemd/system/gannet.service";
    let packaged = std::fs::read_to_string(root().join("packaging/gannet.service")).unwrap();
    assert_eq!(read(unit), packaged);
    assert!(read("usr/lib/systemd/system/gannet@.service").contains("/etc/gannet/%i.yaml"));
    let script = read("DEBIAN/postinst");
    for word in ["enable", "start", "restart"] {
        assert!(!script.contains(&format!("systemctl {word}")), "{script}");
    }
    assert!(script.contains("daemon-reload"));
}

/// The names in an archive.
fn list(archive: &Path) -> Vec<String> {
    let output = Command::new("tar").arg("-tzf").arg(archive).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn an_archive_is_installed_only_with_its_sum() {
    let folder = tempfile::tempdir().unwrap();
    let output = package(folder.path(), "files", &["tar"]);
    let install = |prefix: &str| {
        let mut script = Command::new("sh");
        script.arg(output.join("install.sh")).arg("--prefix").arg(folder.path().join(prefix));
        let ended = script.output().unwrap();
        let said = [ended.stdout, ended.stderr].concat();
        (ended.status.code(), String::from_utf8(said).unwrap())
    };
    let (code, said) = install("good");
    assert!(code == Some(0) && said.starts_with("installed gannet "), "{said}");
    let installed = |path: &str| folder.path().join("good").join(path);
    let version = Command::new(installed("bin/gannet")).arg("--version").output().unwrap();
    assert!(version.status.success());
    for path in
        ["man/man1/gannet-serve.1", "doc/gannet/sbom.cdx.json", "zsh/site-functions/_gannet"]
    {
        assert!(installed("share").join(path).exists(), "{path}");
    }
    let names = sums::files(&output).unwrap();
    let archive = output.join(names.iter().find(|name| name.ends_with(".tar.gz")).unwrap());
    assert!(list(&archive).len() > 15);
    let mut bytes = std::fs::read(&archive).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&archive, bytes).unwrap();
    let (code, said) = install("bad");
    assert!(code == Some(1) && said.contains("expected the sum"), "{said}");
    assert!(!folder.path().join("bad").exists());
}

#[test]
fn npm_installs_the_packages_without_a_registry() {
    let npm = |folder: &Path, args: &[&str]| {
        let mut npm = Command::new("npm");
        npm.args(args).args(["--offline", "--no-audit", "--no-fund"]).current_dir(folder);
        npm.env("npm_config_cache", folder.join("cache")).output()
    };
    let folder = tempfile::tempdir().unwrap();
    if npm(folder.path(), &["--version"]).is_err() {
        say("skipped: npm_installs_the_packages_without_a_registry: no npm");
        return;
    }
    let output = package(folder.path(), "files", &["npm"]);
    let archives = sums::files(&output).unwrap();
    let archives = archives.iter().filter(|name| name.ends_with(".tgz"));
    let archives: Vec<String> =
        archives.map(|name| output.join(name).display().to_string()).collect();
    assert_eq!(archives.len(), 2, "{archives:?}");
    let project = folder.path().join("project");
    std::fs::create_dir(&project).unwrap();
    std::fs::write(project.join("package.json"), "{}").unwrap();
    let installed = npm(&project, &["install", &archives[0], &archives[1]]).unwrap();
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    let program = Command::new(project.join("node_modules/.bin/gannet")).arg("--version").output();
    assert!(program.unwrap().stdout.starts_with(b"gannet "));
    let script = "const {serve, binaryPath} = require('gannet'); console.log(binaryPath())";
    let mut node = Command::new("node");
    let said = node.args(["-e", script]).current_dir(&project).output().unwrap().stdout;
    assert!(String::from_utf8(said).unwrap().trim().ends_with("/bin/gannet"));
}

#[test]
fn the_bill_and_the_licences_name_all_crates() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { output: Some(folder.path().to_owned()), ..Options::default() };
    let release = Release::new(&root(), options).unwrap();
    let bill: serde_json::Value = serde_json::from_str(&sbom::json(&release).unwrap()).unwrap();
    assert_eq!(bill["metadata"]["component"]["name"], "gannet-cli");
    let components = bill["components"].as_array().unwrap();
    assert!(components.len() > 200);
    let licences = licences::text(&release).unwrap();
    for component in components {
        let name = component["name"].as_str().unwrap();
        let is_own = name.starts_with("gannet");
        assert_eq!(component["hashes"].is_null(), is_own, "{component}");
        let line = format!("\n{name} {}: ", component["version"].as_str().unwrap());
        assert_eq!(licences.contains(&line), !is_own, "{line}");
    }
    assert!(licences.contains("TERMS AND CONDITIONS FOR USE, REPRODUCTION"));
}

#[test]
fn units_pass_systemd_analyze() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        say("skipped: units_pass_systemd_analyze: no systemd-analyze");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("gannet");
    std::fs::write(&program, "").unwrap();
    tools::set_mode(&program, 0o755).unwrap();
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let unit = read("packaging/gannet.service");
    let each = linux::of_instances(&unit).unwrap();
    let ranks = read("deploy/gannet-ranks.service");
    let wrong = unit.replace("Type=notify", "Typ=notify");
    for (name, text, is_right) in [
        ("gannet.service", &unit, true),
        ("gannet@.service", &each, true),
        ("gannet-ranks.service", &ranks, true),
        ("b.service", &wrong, false),
    ] {
        let file = folder.path().join(name);
        let program = program.to_str().unwrap();
        std::fs::write(&file, text.replace("/usr/bin/gannet", program)).unwrap();
        let mut analyze = Command::new("systemd-analyze");
        let ended = analyze.args(["verify", "--man=no"]).arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        let about_ours = said.lines().filter(|line| line.contains(name)).collect::<Vec<_>>();
        assert_eq!(about_ours.is_empty() && ended.status.success(), is_right, "{name}: {said}");
    }
    for (unit, exposure) in [("packaging/gannet.service", 40), ("deploy/gannet-ranks.service", 20)]
    {
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["security", "--offline=true", &format!("--threshold={exposure}")]);
        let ended = analyze.arg(root().join(unit)).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success(), "{unit}: {:?}", said.lines().last());
    }
}

#[test]
fn documents_show_the_packaged_unit() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let (page, unit) = (read("docs/serving.md"), read("packaging/gannet.service"));
    assert!(page.contains(&format!("```ini\n{unit}```\n")), "docs/serving.md: another unit");
}

#[test]
fn wrong_arguments_are_named() {
    let wrong = |args: &[&str], expected: &str| {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let error = format!("{:#}", run(&root(), &args).unwrap_err());
        assert!(error.contains(expected), "{error}");
    };
    wrong(&[], "expected a kind of package");
    wrong(&["zip"], "zip: no such kind");
    wrong(&["tar", "--bin"], "--bin: no such option");
    wrong(&["tar", "--binary"], "--binary: expected a value");
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().to_str().unwrap();
    wrong(&["tar", "--output", output, "--binary", "/no/gannet"], "cannot run /no/gannet");
    wrong(&["brew", "--output", output], "expected an archive");
    wrong(&["npm", "--output", output, "--target", "riscv64gc-unknown-linux-gnu"], "found riscv64");
    let other = folder.path().join("other");
    std::fs::write(&other, "#!/bin/sh\necho gannet 9.9.9\n").unwrap();
    tools::set_mode(&other, 0o755).unwrap();
    let other = other.to_str().unwrap();
    wrong(&["tar", "--output", output, "--binary", other], "found gannet 9.9.9");
}

/// Prints what is skipped.
fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{line}");
}
