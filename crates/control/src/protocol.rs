//! The messages of the control protocol. Field names are stable: a client may rely on them, and must ignore fields it
//! does not know.

pub mod certificate;
mod command;
mod crypto;
mod definition;
mod explanation;
mod family;
mod filter;
mod happening;
mod manual;
mod offload;
mod overview;
mod refusal;
mod reload;
mod request;
mod response;
mod stored;
mod trace;
mod tunnel;
pub mod workers;

pub use certificate::CertificateInfo;
pub use command::{Command, Request, VERSION};
pub use crypto::{Amount, CryptoState, CryptoStats, FunctionWork, Served, Tunable};
pub use definition::{ChildPolicy, ResponderWindow, TunnelPolicy};
pub use explanation::{
    Defined, Down, ExplainedFailure, Explanation, FindingInfo, Renewal, Row, Sent, Unanswered,
    Waits,
};
pub use family::{FamiliesInfo, FamilyInfo};
pub use filter::{Count, DefaultAction, FilterChange, FilterInfo, FilterRuleInfo};
pub use happening::{AlgorithmsInfo, Happening};
pub use manual::{KeyedText, ManualSaInfo, SaList, SaName, SaRemoved};
pub use offload::{CardInfo, FallbackInfo, OffloadInfo, PlacedInfo, ResyncInfo};
pub use overview::{
    ConfinementInfo, Fallback, Fleet, GuardInfo, Overview, PlaneInfo, RemarkInfo, Unrouted,
};
pub use refusal::{Refusal, RefusalCode};
pub use reload::{Change, Reloaded};
pub use request::parse;
pub use response::{Outcome, Reply, Response};
pub use stored::{GetPolicy, ObjectChange, Objects, PolicyText, PutPolicy, Stored};
pub use trace::{OneWayTraceInfo, TraceInfo, TracedSa};
pub use tunnel::{Activation, Child, ChildSa, FailureInfo, IkeSa, Narrowed, Tunnel, TunnelPage};
pub use workers::WorkersChange;

/// Longest request in octets, with its newline. The largest policy file (8 MiB) fits into it, even if JSON escapes
/// every character of it with a backslash.
pub const MAX_REQUEST: usize = 2 * (8 << 20) + 64 * 1024;

/// The default path of the socket of `vpnd`.
pub const DEFAULT_SOCKET: &str = "/run/vpnd/control.sock";

/// The default directory of the policy store.
pub const DEFAULT_STORE: &str = "/var/lib/vpnd";
