//! A place of our own: user and mount namespace of the process, network namespaces of threads.
//!
//! Nothing here has a name in the system. The namespaces live as long as a process or a thread is in them, so that the
//! kernel itself removes them, however this process ends.

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

/// Namespaces cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum IsolationError {
    /// Neither root nor an ordinary user may make namespaces here.
    #[error("{0}")]
    Forbidden(String),
    /// Some step was refused.
    #[error("cannot {what}: {source}")]
    System {
        /// The step that failed.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
}

fn system<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> IsolationError {
    let what = what.into();
    move |error| IsolationError::System { what, source: error.into() }
}

/// Moves this process, which must have a single thread still, into a mount namespace with an empty `/run`; where it is
/// not root, into a user namespace in which it is.
pub fn enter() -> Result<(), IsolationError> {
    let as_root = geteuid().is_root() && unshare(CloneFlags::CLONE_NEWNS).is_ok();
    if !as_root {
        let (user, group) = (geteuid(), getegid());
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)
            .map_err(|errno| IsolationError::Forbidden(explain(errno)))?;
        let maps = [
            // user_namespaces(7): without privilege, the groups can be mapped only once setgroups is denied.
            ("setgroups", "deny".to_owned()),
            ("uid_map", format!("0 {user} 1")),
            ("gid_map", format!("0 {group} 1")),
        ];
        for (file, text) in maps {
            fs::write(format!("/proc/self/{file}"), text)
                .map_err(system(format!("write {file}")))?;
        }
    }
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(|errno| IsolationError::Forbidden(explain(errno)))?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("tmpfs"), "/run", Some("tmpfs"), flags, Some("mode=0700,size=64m"))
        .map_err(system("mount a private /run"))
}

/// The reason why no namespace can be made, from the system's settings, and the cure.
pub fn explain(errno: nix::Error) -> String {
    let cause = forbidding_setting().map_or_else(
        || format!("{}; a container needs --privileged for it", errno.desc()),
        str::to_owned,
    );
    format!("cannot make namespaces: {cause}\n  run this command as root, for example with sudo")
}

/// The setting of this system that keeps ordinary users from making namespaces.
pub fn forbidding_setting() -> Option<&'static str> {
    let settings = [
        (
            "user/max_user_namespaces",
            "0",
            "user namespaces are turned off (sysctl user.max_user_namespaces is 0)",
        ),
        (
            "kernel/unprivileged_userns_clone",
            "0",
            "user namespaces are for root only (sysctl kernel.unprivileged_userns_clone is 0)",
        ),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "AppArmor restricts them (sysctl kernel.apparmor_restrict_unprivileged_userns is 1)",
        ),
    ];
    let forbidding = settings.into_iter().find(|(name, value, _)| {
        let found = fs::read_to_string(Path::new("/proc/sys").join(name));
        found.is_ok_and(|text| text.trim() == *value)
    });
    forbidding.map(|(.., cause)| cause)
}

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace, held by a thread that carries out work inside it.
pub struct Namespace {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Namespace {
    /// Makes an empty one; `name` is for messages and the thread.
    pub fn new(name: &str) -> Result<Self, IsolationError> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (entered, result) = mpsc::channel();
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let outcome = unshare(CloneFlags::CLONE_NEWNET);
                let failed = outcome.is_err();
                if entered.send(outcome).is_ok() && !failed {
                    for job in queue {
                        job();
                    }
                }
            })
            .map_err(system("start a thread"))?;
        let namespace = Self { jobs: Some(jobs), thread: Some(thread) };
        match result.recv() {
            Ok(Ok(())) => Ok(namespace),
            Ok(Err(errno)) => Err(IsolationError::Forbidden(explain(errno))),
            Err(_) => Err(system("start a thread")(io::Error::other("it ended"))),
        }
    }

    /// Does something inside: sockets made there and processes started there stay there.
    ///
    /// # Panics
    /// Where `work` does.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = mpsc::channel();
        let job: Job = Box::new(move || {
            // The receiver below waits as long as this lives.
            let _ = done.send(work());
        });
        let jobs = self.jobs.as_ref().expect("it is taken only when dropped");
        assert!(
            jobs.send(job).is_ok(),
            "the thread of the namespace takes jobs as long as it is there"
        );
        result.recv().expect("a job does not panic")
    }

    /// A descriptor of the namespace, to move devices into it.
    pub fn descriptor(&self) -> io::Result<File> {
        self.run(|| File::open("/proc/thread-self/ns/net"))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic inside has been reported by the thread itself.
            let _ = thread.join();
        }
    }
}
