//! The work of each fuzz target with the octets it is given. A finding is a panic.
//!
//! The targets in `fuzz/` call these functions under libFuzzer; the tests of this crate call them with the files of
//! `fuzz/corpus/`, so that what was once reached, or once found, is tried again with every test run.
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | Where is the code of a target? | `wire.rs`, `engine.rs`, `esp_inbound.rs`, `policy_xml.rs`, `control.rs`, `frozen.rs`, `ticket.rs` |
//! | How is a target added? | a file here, a line in `TARGETS`, `fuzz/fuzz_targets/`, `fuzz/Cargo.toml` |
//! | How does the target `engine` forge messages? | `engine/forger.rs`, `engine/certificates.rs` |
//! | How do octets become decisions? | `octets.rs` |
//! | How is a target run, and the corpus alone? | `docs/understand/fuzzing.md`; `tests/corpus.rs` |
#![forbid(unsafe_code)]

mod control;
mod engine;
mod esp_inbound;
mod frozen;
mod octets;
mod policy_xml;
mod ticket;
mod wire;

pub use self::control::control;
pub use self::frozen::frozen;
pub use engine::engine;
pub use esp_inbound::esp_inbound;
pub use policy_xml::policy_xml;
pub use ticket::ticket;
pub use wire::wire;

/// Does something with octets, and panics where what must hold does not.
pub type Target = fn(&[u8]);

/// Every target under the name of its corpus.
pub const TARGETS: &[(&str, Target)] = &[
    ("wire", wire),
    ("engine", engine),
    ("esp_inbound", esp_inbound),
    ("policy_xml", policy_xml),
    ("control", control),
    ("frozen", frozen),
    ("ticket", ticket),
];
