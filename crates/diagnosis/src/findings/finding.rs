//! Findings and their kinds.

/// A reason why the packets of a phase 2 tunnel do not pass, or may not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Finding {
    /// The phase 2 tunnel.
    pub child: String,
    /// Its kind.
    pub kind: FindingKind,
    /// Packets do not pass for this reason. `false`: they may pass, as far as is known.
    pub certain: bool,
    /// The reason, in a sentence for people.
    pub message: String,
    /// The cures, the likeliest first.
    pub cure: Vec<String>,
}

/// The kinds with their names, each of which stands once.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)+) => {
        /// The kind of a [`Finding`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
        #[non_exhaustive]
        pub enum FindingKind {
            $($(#[$doc])* $kind,)+
        }

        impl FindingKind {
            /// Every kind.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$kind),+];

            /// Stable lower-case name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }
        }
    };
}

kinds! {
    /// The kernel forwards no packets, and there is a network behind this host.
    Forwarding = "forwarding",
    /// The kernel's reverse path filter drops packets.
    RpFilter = "rp_filter",
    /// A rule of this host's packet filter drops packets.
    Firewall = "firewall",
    /// A NAT rule of this host changes the source of the packets, which then belong to no tunnel.
    Nat = "nat",
    /// Packets for the remote network do not enter the tunnel.
    Route = "route",
    /// No route leads to the local network.
    NoRouteBehind = "no_route_behind",
    /// The same addresses are on both sides.
    DuplicateSubnet = "duplicate_subnet",
    /// An earlier tunnel of the policy covers all its traffic.
    Shadowed = "shadowed",
    /// The peer has agreed to less traffic than the policy names.
    Narrowed = "narrowed",
    /// Packets pass in one direction only.
    OneWay = "one_way",
    /// The guard drops packets that were about to leave in the clear.
    Unprotected = "unprotected",
}

impl Finding {
    /// A finding about a phase 2 tunnel, without a cure.
    pub fn new(
        child: impl Into<String>,
        kind: FindingKind,
        certain: bool,
        message: impl Into<String>,
    ) -> Self {
        let (child, message) = (child.into(), message.into());
        Self { child, kind, certain, message, cure: Vec::new() }
    }

    /// The same with something to do about it.
    #[must_use]
    pub fn with_cure(self, cure: impl IntoIterator<Item = String>) -> Self {
        Self { cure: cure.into_iter().collect(), ..self }
    }
}

/// A command that sets a value of the kernel, and how that is kept.
pub(super) fn sysctl(setting: &str, value: u8) -> [String; 2] {
    [
        format!("sysctl -w {setting}={value}"),
        format!("to keep it over a reboot: echo {setting}={value} >> /etc/sysctl.d/90-vpn.conf"),
    ]
}
