//! The text that commands print: tables, states, durations and counts.
//!
//! Text that came from a peer or a file passes through [`plain`], so that it cannot steer the terminal.

mod certificates;
mod counters;
mod crypto;
pub(crate) mod families;
mod fields;
mod fitting;
pub(crate) mod list;
mod manual;
mod narrowed;
mod offload;
mod overview;
mod probe;
mod quiet;
mod reload;
pub(crate) mod since;
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
pub(crate) use list::Algorithms;
pub use list::{list, verbose};
pub use manual::{manual, sa_list, sa_removed, sas_added};
pub use offload::{not_offloaded, offload, resynced, summary as offload_summary};
pub use overview::{filter, overview, trace};
pub use probe::probed;
pub use quiet::quiet;
pub use reload::reloaded;
pub use status::{activation, status};
pub use stored::stored;
pub use table::Table;
pub use terminal::{Colour, fit_stdout, plain};
pub(crate) use terminal::{width, wrapped};
pub use why::{happening, why};
pub use workers::workers;

#[cfg(test)]
mod tests;
