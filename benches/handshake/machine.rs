//! Where it was measured.

use lab::machine::Machine;

/// The machine in one line.
pub fn description() -> String {
    format!("{}\n", Machine::look())
}
