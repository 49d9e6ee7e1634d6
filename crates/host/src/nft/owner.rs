//! A table that belongs to a process: the kernel lets nobody else change it, `nft flush ruleset` passes over it, and it
//! goes with the process (`NFT_TABLE_F_OWNER`, Linux 5.12).
//!
//! The process is an interactive `nft`. It reads commands from this one until this one ends, whichever way it ends.
//! Each of them has it read a script from memory that both share.

use super::{Commands, DEADLINE, Watchdog, program};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Errno, FdFlags, fcntl_setfd, retry_on_intr};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::{self, BufRead, BufReader, PipeReader, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A process that owns a table. Dropping this removes the table.
pub trait Owner: Send {
    /// Carries out a script, all of it or nothing. `whole`: the script [replaces](super::Commands::replace) the whole
    /// table; otherwise it changes the table that is there.
    ///
    /// # Errors
    /// If nftables refuses the script, or the process has ended: then the table is gone.
    fn run(&mut self, script: &str, whole: bool) -> io::Result<()>;

    /// The end of the process.
    ///
    /// # Errors
    /// If the system refuses it.
    fn end(&self) -> io::Result<End>;
}

/// A descriptor that shows an end, and the way in which it does.
pub struct End(OwnedFd, PollFlags);

impl End {
    fn of_process(child: &Child) -> io::Result<Self> {
        let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        Ok(Self(process, PollFlags::IN))
    }

    /// The end of a connection: the other side closes it.
    ///
    /// # Errors
    /// If the system has no more descriptors.
    pub fn of_connection(socket: impl AsFd) -> io::Result<Self> {
        Ok(Self(socket.as_fd().try_clone_to_owned()?, PollFlags::RDHUP))
    }

    /// Waits for it.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn wait(&self) -> io::Result<()> {
        let Self(descriptor, sign) = self;
        retry_on_intr(|| poll(&mut [PollFd::new(descriptor, *sign)], None))?;
        Ok(())
    }
}

/// Memory for the scripts of an owner that is started when this process can no longer make such memory.
static KEPT: Mutex<Option<Arc<File>>> = Mutex::new(None);

/// Makes the memory that one [owner](super::own) needs, for a process that is going to be confined.
pub fn keep_script() {
    // Without it, no owner starts, and the caller that starts one is told why.
    drop(Memory::make());
}

fn kept() -> MutexGuard<'static, Option<Arc<File>>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory that a process reads scripts from. Dropping this leaves it to the next owner.
struct Memory(Arc<File>);

impl Memory {
    fn take() -> io::Result<Self> {
        let kept = kept().take();
        kept.map_or_else(Self::make, |file| Ok(Self(file)))
    }

    fn make() -> io::Result<Self> {
        // Linux before 6.3 does not know that nobody is to execute it.
        let sealed = memfd_create("nft", MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL);
        let file = sealed.or_else(|error| match error {
            Errno::INVAL => memfd_create("nft", MemfdFlags::CLOEXEC),
            error => Err(error),
        });
        Ok(Self(Arc::new(file?.into())))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        *kept() = Some(Arc::clone(&self.0));
    }
}

/// An interactive `nft`, a child of this process.
pub struct Process {
    table: String,
    child: Child,
    /// `None` once the child is to end.
    commands: Option<ChildStdin>,
    answers: BufReader<PipeReader>,
    script: Memory,
    /// The number of scripts so far.
    number: u64,
    /// The number of the last script that was carried out.
    mark: u64,
}

impl Process {
    /// Starts the process. Its table is not there yet.
    ///
    /// # Errors
    /// If this host has no `nft`, or the system refuses it.
    pub fn start(table: &str) -> io::Result<Self> {
        let program = program().ok_or(io::ErrorKind::NotFound)?;
        let script = Memory::take()?;
        let (answers, theirs) = io::pipe()?;
        let mut command = Command::new(program);
        // It would write the history of its commands to the home directory.
        command.arg("-i").env_clear().env("HOME", "/dev/null").stdin(Stdio::piped());
        command.stdout(theirs.try_clone()?).stderr(theirs);
        fcntl_setfd(&*script.0, FdFlags::empty())?;
        let child = command.spawn();
        fcntl_setfd(&*script.0, FdFlags::CLOEXEC)?;
        drop(command);
        let mut child = child?;
        let commands = child.stdin.take();
        let (table, answers) = (table.to_owned(), BufReader::new(answers));
        Ok(Self { table, child, commands, answers, script, number: 0, mark: 0 })
    }

    fn carry_out(&mut self, script: &str, whole: bool) -> io::Result<()> {
        let table = &self.table;
        // The counter is there once the script has been carried out.
        let mark = mark(self.number);
        let marks = marks(table, (!whole).then_some(self.mark), self.number);
        let file = &*self.script.0;
        file.set_len(0)?;
        file.write_all_at(format!("{script}{marks}").as_bytes(), 0)?;
        let commands = self.commands.as_mut().ok_or_else(has_ended)?;
        commands.write_all(request(file.as_raw_fd(), table, &mark).as_bytes())?;
        commands.flush()?;
        let (shown, asked) = (format!("counter {mark} {{"), format!("list counter inet {table}"));
        let mut complaint = None;
        loop {
            let mut line = String::new();
            if self.answers.read_line(&mut line)? == 0 {
                return Err(complaint.map_or_else(has_ended, io::Error::other));
            }
            let line = line.trim();
            if line == shown {
                self.mark = self.number;
                return Ok(());
            }
            // A complaint about a command repeats it. Some builds of nft also repeat it as they read it, after a
            // prompt.
            if line.starts_with(&asked) && line.ends_with(&mark) {
                let complaint = complaint.unwrap_or_else(|| "no reason given".to_owned());
                return Err(io::Error::other(complaint));
            }
            if complaint.is_none() && line.contains("rror: ") {
                complaint = Some(line.to_owned());
            }
        }
    }
}

fn has_ended() -> io::Error {
    io::Error::other("it has ended")
}

/// The counter that tells that a script has been carried out.
fn mark(number: u64) -> String {
    format!("script_{number}")
}

/// The commands at the end of a script: its mark takes the place of the former one, if the table has one.
fn marks(table: &str, former: Option<u64>, number: u64) -> Commands {
    let mut commands = Commands::default();
    if let Some(former) = former {
        commands.delete_counter([table, &mark(former)]);
    }
    commands.add_counter([table, &mark(number)]);
    commands
}

/// The commands for the process: the script in a file, and a question about its mark. The answer to the question has
/// the mark in any case.
fn request(file: RawFd, table: &str, mark: &str) -> Commands {
    let mut commands = Commands::default();
    commands.include(file);
    commands.list_counter([table, mark]);
    commands
}

impl Owner for Process {
    fn run(&mut self, script: &str, whole: bool) -> io::Result<()> {
        self.number += 1;
        let watchdog = Watchdog::start(&self.child, DEADLINE)?;
        let outcome = self.carry_out(script, whole);
        let outcome = if watchdog.end() { Err(super::late(DEADLINE)) } else { outcome };
        outcome.map_err(|e| io::Error::new(e.kind(), format!("nft: {e}")))
    }

    fn end(&self) -> io::Result<End> {
        End::of_process(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It ends with its commands.
        drop(self.commands.take());
        let watchdog = Watchdog::start(&self.child, DEADLINE);
        if watchdog.is_err() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
        drop(watchdog.map(Watchdog::end));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Table;
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_next_owner_has_the_memory_of_one_that_has_not_started() {
        let number = |memory: &Memory| memory.0.metadata().expect("it is open").ino();
        let first = number(&Memory::take().expect("the system makes it"));
        // Nobody else takes it meanwhile: no other test of this program starts an owner.
        assert_eq!(number(&Memory::take().expect("it was left")), first);
    }

    #[test]
    fn the_commands_for_an_owner_are_as_expected() {
        let mut whole = Commands::default();
        whole.replace(&Table::owned("t"));
        let declaration = "table inet t {\n  flags owner\n}\n";
        assert_eq!(&*whole, format!("{declaration}delete table inet t\n{declaration}"));
        assert_eq!(&*marks("t", None, 1), "add counter inet t script_1\n");
        let expected = "delete counter inet t script_1\nadd counter inet t script_2\n";
        assert_eq!(&*marks("t", Some(1), 2), expected);
        let expected = "include \"/proc/self/fd/7\"\nlist counter inet t script_2\n";
        assert_eq!(&*request(7, "t", &mark(2)), expected);
    }

    #[test]
    fn an_end_is_awaited() {
        let (socket, other) = UnixStream::pair().expect("the system makes it");
        let mut child =
            Command::new("/bin/cat").stdin(Stdio::piped()).spawn().expect("it is there");
        let ends = [End::of_connection(&socket), End::of_process(&child)];
        let ends = ends.map(|end| end.expect("the system has descriptors"));
        let waiting = ends.map(|end| std::thread::spawn(move || end.wait()));
        drop(other);
        drop(child.stdin.take());
        for thread in waiting {
            thread.join().expect("no panic").expect("it has ended");
        }
        child.wait().expect("a child of ours");
    }
}
