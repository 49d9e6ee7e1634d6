//! Chromium without a window, on the host of a gateway, commanded by its DevTools protocol.
//!
//! The protocol is JSON over two pipes (`--remote-debugging-pipe`), each message with a zero octet behind it. So no port is
//! open, nothing has to be found out about the process, and no other program is needed.

use crate::space::Space;
use crate::{Need, PATIENCE, until};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// The program that a browser's test needs.
pub const BROWSER: Need = Need::Program("chromium");

/// Standard input and output become the two pipes.
const START: &str = "exec chromium \"$@\" 3<&0 4>&1 0</dev/null 1>&2";

/// Notes each violation of the page's policy.
const WATCH: &str = "window.violations = []; addEventListener('securitypolicyviolation', \
                     (event) => violations.push(`${event.violatedDirective}: ${event.blockedURI}`));";

/// A running browser with one page. It ends with this value.
pub struct Browser {
    process: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    /// Messages that answer no command.
    events: Vec<Value>,
    number: u64,
    session: Option<String>,
}

impl Browser {
    /// Starts one whose profile and log are in this directory.
    pub fn start(space: &Space, directory: &Path) -> Self {
        fs::create_dir_all(directory).expect("writable");
        let log = File::create(directory.join("log")).expect("writable");
        let mut command = Command::new("sh");
        command.args(["-c", START, "sh", "--headless", "--remote-debugging-pipe", "--no-sandbox"]);
        command.args(["--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--lang=en"]);
        command.args(["--disable-background-networking", "--disable-component-update"]);
        command.arg(format!("--user-data-dir={}", directory.join("profile").display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut process = space.run(move || command.spawn()).expect("a shell");
        let commands = process.stdin.take().expect("it is piped");
        let output = process.stdout.take().expect("it is piped");
        let (sender, messages) = channel();
        thread::spawn(move || {
            for message in BufReader::new(output).split(0) {
                // At its end, it may leave a piece of one.
                let Some(message) = message.ok().and_then(|m| serde_json::from_slice(&m).ok())
                else {
                    return;
                };
                // The browser may outlive its owner for a moment.
                let _ = sender.send(message);
            }
        });
        let events = Vec::new();
        let mut browser = Self { process, commands, messages, events, number: 0, session: None };
        let target = browser.command("Target.createTarget", json!({"url": "about:blank"}));
        let target = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.command("Target.attachToTarget", target);
        browser.session = Some(session["sessionId"].as_str().expect("a name").to_owned());
        for domain in ["Page", "Runtime", "Log"] {
            browser.command(&format!("{domain}.enable"), json!({}));
        }
        // Without a window, it would have no focus.
        browser.command("Emulation.setFocusEmulationEnabled", json!({"enabled": true}));
        browser.command("Page.addScriptToEvaluateOnNewDocument", json!({"source": WATCH}));
        browser
    }

    /// Carries out a command of the protocol, and returns its result.
    pub fn command(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut octets = message.to_string().into_bytes();
        octets.push(0);
        self.commands.write_all(&octets).expect("the browser runs");
        loop {
            let answer = self.messages.recv_timeout(PATIENCE).expect("the browser answers");
            if answer["id"] == json!(self.number) {
                assert!(answer["error"].is_null(), "{message}\n{answer}");
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    /// Opens an address.
    pub fn open(&mut self, address: &str) {
        let opened = self.command("Page.navigate", json!({"url": address}));
        assert!(opened["errorText"].is_null(), "{address}: {opened}");
    }

    /// The value of an expression in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.command("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}\n{answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub fn await_true(&mut self, expression: &str) {
        // An element may not be there yet.
        let tried = format!(
            "(() => {{ try {{ return Boolean({expression}) }} catch {{ return false }} }})()"
        );
        let browser = RefCell::new(self);
        let holds = || (browser.borrow_mut().value(&tried) == true).then_some(());
        until(expression, holds, || browser.borrow_mut().text());
    }

    /// All text of the page, for a message.
    pub fn text(&mut self) -> String {
        self.value("document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    /// Presses a key, as in `Tab`, `Enter`, `Escape`, `ArrowRight` or `/`.
    pub fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            "Escape" => (27, ""),
            "ArrowRight" => (39, ""),
            character => (0, character),
        };
        let down =
            json!({"type": "keyDown", "key": key, "windowsVirtualKeyCode": code, "text": text});
        self.command("Input.dispatchKeyEvent", down);
        let up = json!({"type": "keyUp", "key": key, "windowsVirtualKeyCode": code});
        self.command("Input.dispatchKeyEvent", up);
    }

    /// Types text into the focused field.
    pub fn write(&mut self, text: &str) {
        self.command("Input.insertText", json!({"text": text}));
    }

    /// Gives the page a size and a colour scheme, `light` or `dark`.
    pub fn look(&mut self, width: u32, height: u32, scheme: &str) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.command("Emulation.setDeviceMetricsOverride", size);
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.command("Emulation.setEmulatedMedia", features);
    }

    /// A picture of the page as it is seen, in base64. The format is `png` or `webp`.
    pub fn picture(&mut self, format: &str) -> String {
        let wanted = json!({"format": format, "quality": 80});
        let wanted = if format == "png" { json!({"format": format}) } else { wanted };
        let picture = self.command("Page.captureScreenshot", wanted);
        picture["data"].as_str().expect("base64").to_owned()
    }

    /// Everything that the browser has complained of: errors, warnings and violations of the page's policy.
    pub fn complaints(&mut self) -> Vec<String> {
        let violations = self.value("window.violations");
        let said = |event: &Value| {
            let parameters = &event["params"];
            let bad = |level: &Value| level == "error" || level == "warning";
            let is_bad = match event["method"].as_str()? {
                "Log.entryAdded" => bad(&parameters["entry"]["level"]),
                "Runtime.consoleAPICalled" => bad(&parameters["type"]),
                "Runtime.exceptionThrown" => true,
                _ => false,
            };
            is_bad.then(|| parameters.to_string())
        };
        let violations = violations.as_array().cloned().unwrap_or_default();
        let violations = violations.iter().map(ToString::to_string);
        self.events.iter().filter_map(said).chain(violations).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
