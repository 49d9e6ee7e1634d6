//! The sections that are declared, as `config/vpnd.toml` has them.

use super::{Control, FamiliesSection, Log, Metrics, PolicyStore, Traces};
use settings::{Declared, Section};

/// The sections, in the order of the file.
pub static SECTIONS: [Section; 6] = [
    PolicyStore::SECTION,
    Control::SECTION,
    Log::SECTION,
    Metrics::SECTION,
    Traces::SECTION,
    FamiliesSection::SECTION,
];
