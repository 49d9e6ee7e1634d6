//! IPsec of an address family, switched off: the datapath beneath drops the packets.

use super::Recorder;
use esp::families::Families;
use esp::plane::{FamilySwitching, PlaneError};

impl FamilySwitching for Recorder {
    fn set_families(&mut self, families: Families) -> Result<(), PlaneError> {
        match &mut self.datapath {
            Some(datapath) => datapath.set_families(families),
            // Tunnels of a family that is off are taken down, and without a datapath only packets of tunnels are told
            // of.
            None => Ok(()),
        }
    }
}
