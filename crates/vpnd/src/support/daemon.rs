//! The answers of the daemon.

use super::Collection;
use super::secrets::Secrets;
use control::client::{Client, ClientError};
use control::protocol::{Child, Command as Ask, GetPolicy, Reply, Tunnel};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The most tunnels that are explained; those that are not up come first.
const EXPLAINED: usize = 100;

/// The questions, and the files of their answers.
fn questions() -> [(&'static str, Ask); 14] {
    [
        ("overview.json", Ask::Overview),
        ("tunnels.json", Ask::List { all: true }),
        ("counters.json", Ask::Counters),
        ("tunnel-counters.json", Ask::TunnelCounters),
        ("workers.json", Ask::Workers),
        ("certificates.json", Ask::Certs),
        ("crypto.json", Ask::Crypto),
        ("crypto-stats.json", Ask::CryptoStats),
        ("families.json", Ask::Families),
        ("filter.json", Ask::Filter),
        ("offload.json", Ask::Offload),
        ("manual-sas.json", Ask::SaList),
        ("xfrm.txt", Ask::Xfrm { keys: false }),
        ("policy.xml", Ask::PolicyGet(GetPolicy { recursive: true, ..GetPolicy::default() })),
    ]
}

/// Takes note of the keys in the policy.
pub(super) fn learn(client: &mut Client, secrets: &mut Secrets) {
    let [with, without] = [true, false].map(|keys| {
        let wanted = GetPolicy { recursive: true, keys, ..GetPolicy::default() };
        match client.ask(Ask::PolicyGet(wanted)) {
            Ok(Reply::Policy(policy)) => Some(policy.0),
            _ => None,
        }
    });
    if let (Some(with), Some(without)) = (with, without) {
        secrets.learn_difference(&with, &without);
        secrets.learn_policy(&with);
    }
}

/// Asks the daemon everything, and records the events meanwhile.
pub(super) fn collect(mut client: Client, control: &Path, all: &mut Collection) {
    let events = Events::record(control);
    let mut tunnels = Vec::new();
    for (name, question) in questions() {
        let answer = match question {
            Ask::List { all } => client.tunnels(all).map(Reply::Tunnels),
            question => client.ask(question),
        };
        let is_lost = matches!(&answer, Err(error) if !matches!(error, ClientError::Refused(_)));
        if let Ok(Reply::Tunnels(told)) = &answer {
            tunnels = names(told);
        }
        all.add(name, answer.map_err(|error| error.to_string()).and_then(text));
        if is_lost {
            // A late answer would be taken for that to the next question.
            return all.add("further answers", Err("vpnd did not answer the last question".into()));
        }
    }
    let explained = tunnels.iter().take(EXPLAINED);
    let explanations: Result<Vec<Reply>, ClientError> =
        explained.map(|name| client.ask(Ask::Why { name: name.clone() })).collect();
    let why = explanations.map_err(|error| error.to_string()).and_then(|replies| {
        let texts: Result<Vec<String>, String> = replies.into_iter().map(text).collect();
        texts.map(|texts| texts.concat())
    });
    all.add("why.json", why);
    if tunnels.len() > EXPLAINED {
        let why = format!("{} tunnels are not explained", tunnels.len() - EXPLAINED);
        all.add("why.json (the rest)", Err(why));
    }
    all.add("events.json", events.map(Events::text));
}

/// The names of phase 1 tunnels, first of those that are not wholly up.
fn names(tunnels: &[Tunnel]) -> Vec<String> {
    let (whole, others): (Vec<&Tunnel>, Vec<&Tunnel>) = tunnels
        .iter()
        .partition(|tunnel| tunnel.is_up() && tunnel.children.iter().all(Child::is_up));
    others.into_iter().chain(whole).map(|tunnel| tunnel.name.clone()).collect()
}

/// An answer as the text of a file.
fn text(reply: Reply) -> Result<String, String> {
    match reply {
        Reply::Policy(policy) => Ok(policy.0.to_string()),
        Reply::Xfrm(commands) => Ok(commands.to_string()),
        reply => {
            let value = serde_json::to_value(reply).map_err(|error| error.to_string())?;
            // The name of its kind is the one field.
            let inner = value.as_object().and_then(|fields| fields.values().next());
            let text = serde_json::to_string_pretty(inner.unwrap_or(&value));
            text.map(|text| text + "\n").map_err(|error| error.to_string())
        }
    }
}

/// Events that are recorded by a thread, until the connection is closed.
struct Events {
    lines: Arc<Mutex<String>>,
    connection: std::os::unix::net::UnixStream,
    thread: thread::JoinHandle<()>,
}

impl Events {
    fn record(control: &Path) -> Result<Self, String> {
        let mut client = Client::connect(control).map_err(|error| error.to_string())?;
        client.ask(Ask::Events { names: Vec::new() }).map_err(|error| error.to_string())?;
        let connection = client.connection().map_err(|error| error.to_string())?;
        let lines = Arc::new(Mutex::new(String::new()));
        let recorded = Arc::clone(&lines);
        let thread = thread::spawn(move || {
            while let Ok(Some(event)) = client.next_event() {
                let Ok(line) = serde_json::to_string(&event) else { continue };
                let mut lines = recorded.lock().unwrap_or_else(PoisonError::into_inner);
                lines.push_str(&line);
                lines.push('\n');
            }
        });
        Ok(Self { lines, connection, thread })
    }

    fn text(self) -> String {
        let _ = self.connection.shutdown(std::net::Shutdown::Both);
        let _ = self.thread.join();
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
