//! The library in programs of other languages, of an ordinary user without any capability.

use crate::proxy::{HOST, Scene, megabyte};
use libtest_mimic::Trial;
use nix::unistd::chown;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use testkit::nobody::as_nobody;
use testkit::{FILTERED, NOBODY, Need, output, policies, test};

const NEEDS: &[Need] = &[Need::All(FILTERED), Need::Program("curl"), Need::Program("setpriv")];

/// The crate of the C ABI.
const FFI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ffi");
const LIBRARY: &str = "libvpn_ffi.so";
/// The distribution's, which every user may run.
const PYTHON: &str = "/usr/bin/python3";
/// Of the environment that `tests/setup` makes.
const PIP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/scapy/bin/pip");

pub fn trials() -> Vec<Trial> {
    const C: &[Need] = &[Need::All(NEEDS), Need::Program("cc"), Need::Program("pkg-config")];
    const INTERPRETED: &[Need] = &[Need::All(NEEDS), Need::File(PYTHON)];
    const INSTALLED: &[Need] = &[Need::All(INTERPRETED), Need::File(PIP)];
    vec![
        test("a program in C fetches from a host behind a tunnel", C, c),
        test("a program in Python fetches from a host behind a tunnel", INTERPRETED, python),
        test("a program in Python cancels connects at any moment", INTERPRETED, cancels),
        test("a wheel for Python is installed and fetches", INSTALLED, wheel),
    ]
}

/// Where cargo has put the library, which is built because this package depends on it for its tests.
fn library() -> PathBuf {
    let programs = Path::new(env!("CARGO_BIN_EXE_vpnd")).parent().expect("a directory");
    programs.join("deps").join(LIBRARY)
}

/// Runs a program of the ordinary user on the host that has no other network.
fn run(scene: &Scene, program: &str, arguments: &[&str], library: Option<&Path>) -> Output {
    let mut command = as_nobody(program);
    let directory = scene.home.directory();
    command.args(arguments).env("LD_LIBRARY_PATH", directory);
    library.into_iter().for_each(|path| _ = command.env("VPN_LIBRARY", path));
    scene.host.run(move || command.output()).expect("the program is there")
}

/// A program of this directory gets what a host behind the tunnel serves; `call` gives it the policy, the host and the
/// port.
fn fetches(scene: &Scene, call: &dyn Fn(&str, &str, u16) -> Output) {
    let told = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let directory = scene.home.directory();
    let watch = scene.hub.space.watch("wire");
    let port = scene.serves(megabyte());
    let path = directory.join("policy.xml");
    let policy = path.display().to_string();
    let fetched = call(&policy, HOST, port);
    assert_eq!(fetched.status.code(), Some(0), "{}", told(&fetched));
    assert!(fetched.stdout.starts_with(b"HTTP/1."), "{:?}", &fetched.stdout[..40]);
    assert!(fetched.stdout.ends_with(&megabyte()), "{} octets", fetched.stdout.len());
    // The peer has been told that it is over.
    scene.hub.await_list(&[]);
    watch.nothing_in_the_clear();

    let refused = call(&policy, "192.0.2.99", 80);
    assert_eq!(refused.status.code(), Some(1), "{}", told(&refused));
    assert!(told(&refused).contains("192.0.2.99"), "{}", told(&refused));

    // The peer has another key.
    let text = fs::read_to_string(&path).expect("there");
    let keys = ["tests-replace-this-key-before-use", "another-key-of-this-length"];
    fs::write(&path, policies::changed(&text, keys[0], keys[1])).expect("writable");
    chown(&path, Some(NOBODY.into()), Some(NOBODY.into())).expect("given away");
    let refused = call(&policy, HOST, port);
    assert_eq!(refused.status.code(), Some(1), "{}", told(&refused));
    assert!(told(&refused).contains("compare preshared keys"), "{}", told(&refused));

    fs::write(&path, "<nonsense/>").expect("writable");
    let refused = call(&policy, HOST, port);
    assert_eq!(refused.status.code(), Some(1), "{}", told(&refused));
    assert!(told(&refused).contains("policy:1:2"), "{}", told(&refused));
}

fn c() {
    let scene = Scene::new();
    let directory = scene.home.directory();
    // As it is installed: library, header and the file of pkg-config in one directory.
    copy(&library(), &directory.join(LIBRARY));
    let described = fs::read_to_string(Path::new(FFI).join("vpn.pc.in")).expect("the source");
    let described = described
        .replace("@PREFIX@", &directory.display().to_string())
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
        .replace("${prefix}/lib", "${prefix}")
        .replace("${prefix}/include", FFI);
    fs::write(directory.join("vpn.pc"), described).expect("writable");
    let mut flags = Command::new("pkg-config");
    flags.args(["--cflags", "--libs", "vpn"]).env("PKG_CONFIG_PATH", directory);
    let flags = output(flags);
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-o"]);
    cc.arg(directory.join("fetch")).arg(Path::new(FFI).join("examples/fetch.c"));
    output({
        cc.args(flags.split_whitespace());
        cc
    });
    let program = directory.join("fetch").display().to_string();
    fetches(&scene, &|policy, host, port| {
        run(&scene, &program, &[policy, &format!("{host}:{port}")], None)
    });
}

fn copy(from: &Path, to: &Path) {
    let mut cp = Command::new("cp");
    cp.arg(from).arg(to);
    output(cp);
}

fn python() {
    let scene = Scene::new();
    let directory = scene.home.directory();
    for from in [python_file("vpn.py"), python_file("fetch.py")] {
        copy(&from, directory);
    }
    let elsewhere = directory.join("another-name.so");
    copy(&library(), &elsewhere);
    fetches_in_python(&scene, Some(&elsewhere));
}

fn python_file(name: &str) -> PathBuf {
    Path::new(FFI).join("python").join(name)
}

fn cancels() {
    let scene = Scene::new();
    let directory = scene.home.directory();
    for from in [python_file("vpn.py"), Path::new(FFI).join("tests/cancelled.py")] {
        copy(&from, directory);
    }
    let from = directory.join(LIBRARY);
    copy(&library(), &from);
    let port = scene.serves(megabyte()).to_string();
    let [program, policy] =
        ["cancelled.py", "policy.xml"].map(|name| directory.join(name).display().to_string());
    let said = run(&scene, PYTHON, &[&program, &policy, HOST, &port], Some(&from));
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    assert_eq!(said.stdout, b"nothing stays\n");
}

fn fetches_in_python(scene: &Scene, library: Option<&Path>) {
    let program = scene.home.path("fetch.py").display().to_string();
    fetches(scene, &|policy, host, port| {
        run(scene, PYTHON, &[&program, policy, host, &port.to_string()], library)
    });
}

/// `packaging/wheel` makes it of the library that is built already. Collecting the licenses of the libraries in it is
/// played at night (`tests/packages`).
fn wheel() {
    let scene = Scene::new();
    let directory = scene.home.directory();
    let licenses = directory.join("licenses");
    fs::write(&licenses, "the licenses of libraries").expect("writable");
    let made = [1, 2].map(|number| {
        let to = directory.join(format!("wheel{number}"));
        let mut make = Command::new(Path::new(FFI).join("../../packaging/wheel"));
        make.arg("--library").arg(library()).arg("--licenses").arg(&licenses);
        make.arg("--output").arg(&to);
        output(make);
        let mut files =
            fs::read_dir(&to).expect("made").map(|entry| entry.expect("readable").path());
        files.next().expect("a wheel")
    });
    assert!(fs::read(&made[0]).expect("readable") == fs::read(&made[1]).expect("readable"));
    // Beside the program, where Python looks first; pip compares the files with their hashes.
    let mut install = Command::new(PIP);
    install.args(["install", "--quiet", "--no-index", "--no-deps", "--target"]);
    install.arg(directory).arg(&made[0]);
    output(install);
    let installed = fs::read_dir(directory).expect("there").map(|e| e.expect("readable").path());
    let mut installed = installed.map(|path| path.join("licenses/LICENSES-of-libraries"));
    let installed = installed.find(|path| path.exists()).expect("the licenses are installed");
    assert_eq!(fs::read_to_string(installed).expect("text"), "the licenses of libraries");
    copy(&python_file("fetch.py"), directory);
    fetches_in_python(&scene, None);
}
