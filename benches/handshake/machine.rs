//! Where it was measured.

use cli::experiment::machine::Machine;

/// The machine in one line.
pub fn description() -> String {
    format!("{}\n", Machine::look())
}
