//! The frame for the settings of `vpnd.toml`, and the sections that both programs read.
//!
//! ```text
//!                           ┌─► struct with Default, Deserialize
//!                           ├─► text() ──────────► config/vpnd.toml
//!  section! { … } ──────────┼─► SECTION: keys ───► manual page with ranges, suggestions for misspelt names
//!   one line for a setting  ├─► check() ─────────► errors about values out of range
//!                           └─► needs_restart() ─► names of the settings that a reload cannot apply
//! ```
//!
//! A setting is declared with its documentation, type and default, and where it has them with its range and the way in
//! which a change takes effect. The declaration stands beside the types of its section: sections that need the engine
//! are in `crates/vpnd/src/config/`, and those that `vpnctl` reads, too, are here.
//!
//! # Example
//!
//! ```
//! use settings::{Declared, Span, Times};
//! use std::time::Duration;
//!
//! settings::section! {
//!     /// `[kettle]`: an example.
//!     pub struct Kettle = "kettle" {
//!         /// Time until the tea is ready.
//!         pub brew: Span = Span::seconds(180), range Times::between(Duration::from_secs(60), Duration::from_secs(600));
//!         /// Number of cups. "vpnctl reload" changes it.
//!         pub cups: u16 = 2, range 1..=12, applies Reload;
//!     }
//! }
//!
//! assert_eq!(
//!     Kettle::SECTION.to_string(),
//!     "[kettle]\n# Time until the tea is ready.\n#brew = \"3m\"\n# Number of cups. \"vpnctl reload\" changes it.\n#cups = 2\n"
//! );
//! let other: Kettle = toml::from_str("brew = \"2m\"\ncups = 20").expect("both are settings");
//! let refused = other.check().expect_err("20 are too many");
//! assert_eq!((refused.field.as_str(), refused.rule.as_str()), ("kettle.cups", "it must be between 1 and 12"));
//! assert_eq!(other.needs_restart(&Kettle::default()), ["kettle.brew"]);
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | What can be said about a setting, and what comes of it? | `section.rs` |
//! | How is a default written in the file? | `value.rs` |
//! | Which ranges are there, and what do refusals say? | `range.rs` |
//! | How is a length of time written? | `span.rs` |
//! | Which settings does `vpnctl` read, too? | `control.rs`, `log.rs` |
#![forbid(unsafe_code)]

mod control;
mod log;
mod range;
mod section;
mod span;
mod value;

pub use self::control::Control;
pub use self::log::{BadLevel, Log, LogFormat, LogLevel};
pub use range::{Judged, OutOfRange, Range, Times, in_range};
pub use section::{Applies, Declared, Key, Section};
pub use span::Span;
pub use value::{Named, Value, optional, read_optional, word};
