//! The text that commands print: tables, states, durations and counts.
//!
//! Text that came from a peer or a file passes through [`plain`], so that it cannot steer the terminal.

mod certificates;
mod counters;
mod crypto;
mod families;
mod fields;
mod fitting;
pub mod list;
mod manual;
mod narrowed;
mod offload;
mod overview;
mod quiet;
mod reload;
pub mod since;
mod status;
mod stored;
mod table;
mod terminal;
mod why;
mod workers;

pub use certificates::certificates;
pub use control::quantity::{bytes, compact, count, duration, rate};
pub use counters::{counters, tunnel_counters};
pub use crypto::{crypto_stats, tunable_changed, tunables};
pub use families::families;
pub use fields::Fields;
pub use list::Algorithms;
pub use list::{Part, list, verbose};
pub use manual::{manual, sa_list, sa_removed, sas_added};
pub use offload::{not_offloaded, offload, resynced, summary as offload_summary};
pub use overview::{filter, overview, trace};
pub use quiet::quiet;
pub use reload::reloaded;
pub use status::{activation, status};
pub use stored::stored;
pub use table::Table;
pub use terminal::{Colour, fit_stdout, plain};
pub use terminal::{width, wrapped};
pub use why::{found, happening, why};
pub use workers::workers;

#[cfg(test)]
mod tests;
