//! The process that has the held table, and the names of held tables.

#![forbid(unsafe_code)]

/// The groups to which the guards of gateways log some of the packets that they drop instead of letting them leave: that
/// of one with the [first](HeldTable) held table, and that of one with the second. A group has one listener.
const LOG_GROUPS: [u16; 2] = [4500, 4501];

/// The process that has the held table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// None: the guard is put in force, and left.
    Nobody,
    /// A gateway, while it runs.
    Gateway {
        /// It hears of the packets that the guard logs.
        logs: bool,
        /// The held table.
        held: HeldTable,
    },
    /// A watch over a guard while no gateway runs.
    Watch,
}

impl Holder {
    /// The purpose in the name of its table: the table of one may be there while that of another one is made.
    pub(super) fn purpose(self) -> Option<&'static str> {
        match self {
            Self::Nobody => None,
            Self::Gateway { held: HeldTable::First, .. } => Some("held"),
            Self::Gateway { held: HeldTable::Second, .. } => Some("held2"),
            Self::Watch => Some("watch"),
        }
    }

    /// The purposes of all.
    pub(super) fn purposes() -> impl Iterator<Item = &'static str> {
        let gateways =
            [HeldTable::First, HeldTable::Second].map(|held| Self::Gateway { logs: false, held });
        gateways.into_iter().chain([Self::Watch]).filter_map(Self::purpose)
    }
}

/// One of the two held tables that a gateway can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeldTable {
    /// That of a gateway that has begun by itself.
    #[default]
    First,
    /// That of one that goes on after a gateway with the first.
    Second,
}

impl HeldTable {
    /// That of a gateway that goes on after one with this table.
    pub fn next(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    /// The group to which the guard of that gateway logs.
    pub fn log_group(self) -> u16 {
        LOG_GROUPS[self as usize]
    }
}
