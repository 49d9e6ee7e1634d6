//! Serialization of values that are one word or phrase: each is written as it is displayed.

use crate::{Identity, Mode, Protection, Selector};
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

as_displayed!(Identity, Mode, Protection, Selector);
