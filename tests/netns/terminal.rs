//! Commands on a terminal: progress is one line that changes, Ctrl-C leaves the work to vpnd, and `top` takes the whole
//! screen.

use crate::site::two;
use libtest_mimic::Trial;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use testkit::{GATEWAYS, Need, test};

pub fn trials() -> Vec<Trial> {
    const SCRIPTED: &[Need] = &[Need::All(GATEWAYS), Need::Program("script")];
    vec![
        test("progress is one line of a terminal, until Ctrl-C", SCRIPTED, progress),
        test("vpnctl top fits on its terminal", SCRIPTED, top),
    ]
}

/// A `vpnctl` on a terminal of its own.
struct Terminal {
    script: Child,
    /// All that it has written.
    screen: String,
}

impl Terminal {
    fn new(control: &Path, [columns, rows]: [u16; 2], arguments: &str) -> Self {
        let program = testkit::vpnctl();
        let line = format!(
            "stty cols {columns} rows {rows}; exec {program} --control {} {arguments}",
            control.display()
        );
        let script = Command::new("script")
            .args(["-q", "-e", "-c", &line, "/dev/null"])
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script is there");
        Self { script, screen: String::new() }
    }

    fn types(&mut self, keys: &str) {
        let keyboard = self.script.stdin.as_mut().expect("it is piped");
        keyboard.write_all(keys.as_bytes()).expect("it reads");
    }

    /// Reads on until the screen has these words.
    fn await_words(&mut self, words: &str) {
        let mut octets = [0; 4096];
        while !self.screen.contains(words) {
            let output = self.script.stdout.as_mut().expect("it is piped");
            let read = output.read(&mut octets).expect("it writes");
            assert_ne!(read, 0, "it has ended without {words:?}: {}", self.screen);
            self.screen.push_str(&String::from_utf8_lossy(&octets[..read]));
        }
    }

    /// The exit status of the command, and all that it has written.
    fn ended(mut self) -> (Option<i32>, String) {
        let mut rest = Vec::new();
        self.script.stdout.take().expect("it is piped").read_to_end(&mut rest).expect("it ends");
        let status = self.script.wait().expect("a child of ours").code();
        (status, self.screen + &String::from_utf8_lossy(&rest))
    }
}

fn progress() {
    let [mut left, mut right] = two();
    left.start();
    let mut terminal = Terminal::new(&left.path("control.sock"), [60, 24], "activate site");
    terminal.await_words("IKE_SA_INIT sent 2 of ");
    terminal.types("\x03");
    let (status, screen) = terminal.ended();
    assert_eq!(status, Some(130), "{screen:?}");
    let (line, told) = screen.split_once("vpnctl: interrupted").expect("it says so");
    assert!(!line.contains('\n') && line.contains('\r'), "{line:?}");
    assert!(told.contains("vpnd goes on trying\r\n  to see how far it is: vpnctl why site\r\n"));
    right.start();
    left.await_list(&["site_lan"]);

    let terminal = Terminal::new(&left.path("control.sock"), [60, 24], "deactivate site");
    let (status, screen) = terminal.ended();
    assert_eq!((status, screen.ends_with("site: down\r\n")), (Some(0), true), "{screen:?}");
}

fn top() {
    let [mut left, mut right] = two();
    left.start();
    right.start();
    left.ctl_ok(&["activate"]);
    for columns in [60, 80, 100] {
        let mut terminal = Terminal::new(&left.path("control.sock"), [columns, 24], "top");
        terminal.await_words("site_lan");
        terminal.await_words("quit");
        terminal.types("q");
        let (status, screen) = terminal.ended();
        assert_eq!(status, Some(0), "{screen:?}");
        let wide = rightmost(&screen);
        assert!((columns / 2..=columns).contains(&wide), "{columns}, not {wide}: {screen:?}");
    }
}

/// The rightmost column that is written, where each piece of text has its place.
fn rightmost(screen: &str) -> u16 {
    let mut rightmost = 0;
    for piece in screen.split("\x1b[").skip(1) {
        let end = piece.find(|c: char| c.is_ascii_alphabetic()).expect("a sequence");
        let (place, text) = (&piece[..end], &piece[end + 1..]);
        if let (Some('H'), Some((_, column))) = (piece[end..].chars().next(), place.split_once(';'))
        {
            let length = u16::try_from(text.chars().count()).expect("a line at most");
            rightmost = rightmost.max(column.parse::<u16>().expect("a column") - 1 + length);
        }
    }
    rightmost
}
