//! What the programs `vpnd` and `vpnctl` share: sessions of commands, reports, manual pages, completions.
//!
//! ```text
//!            commands!  ─► Command ── Run::run(&self, Session) ──► report/: text, or JSON
//! program ──┤                │                 │
//!            Program    ─► help, manual, shell └─► control::Client ══ socket of the daemon
//! ```
//!
//! Nothing here knows how a gateway works: replies of the control protocol become text. Text that came from a peer or a
//! file passes through [`report::plain`], so that it cannot steer the terminal.
//!
//! # Example
//!
//! ```
//! use terminal::report::{Colour, Table};
//!
//! let mut table = Table::new(["TUNNEL", "STATE"]);
//! table.row(["site".to_owned(), "established".to_owned()]);
//! assert_eq!(table.render(Colour(false)), "TUNNEL  STATE\nsite    established\n");
//! ```
//!
//! # Where to change what
//!
//! | question | file |
//! |---|---|
//! | Where does the text of an answer come from? | `report/`, one file per answer |
//! | Where are tables, widths, colours and states? | `report/table.rs`, `report/terminal.rs` |
//! | How does a command ask, print and fail? | `session.rs` |
//! | How does a program get its table of commands, and its help? | `commands.rs`, `help.rs` |
//! | Where are manual pages and completions made? | `manual.rs`, `shell.rs` |
//! | Which socket is the daemon's? | `control_socket.rs` |
//! | Which commands does `vpnctl` leave to `vpnd`? | `delegated.rs` |
#![forbid(unsafe_code)]

mod commands;
pub mod control_socket;
pub mod delegated;
pub mod help;
pub mod manual;
pub mod report;
pub mod session;
pub mod shell;
