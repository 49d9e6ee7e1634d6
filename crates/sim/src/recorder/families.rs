//! IPsec of an address family, switched off: the datapath beneath drops the packets.

use super::Recorder;
use esp::families::Families;
use esp::plane::{FamilySwitching, PlaneError};

impl FamilySwitching for Recorder {
    fn set_families(&mut self, families: Families) -> Result<(), PlaneError> {
        self.datapath
            .as_mut()
            .map(|datapath| datapath as &mut dyn FamilySwitching)
            .set_families(families)
    }
}
