//! Serialization: each value is written as it is displayed.

use crate::{AhIntegrity, EspEncryption, Group, IkeEncryption, Integrity, Prf};
use serde::{Serialize, Serializer};

macro_rules! as_displayed {
    ($($name:ident),* $(,)?) => {
        $(impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        })*
    };
}

as_displayed!(AhIntegrity, EspEncryption, Group, IkeEncryption, Integrity, Prf);
