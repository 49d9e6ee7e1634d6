//! The rules that SAs keyed by hand have to keep together, and the reasons why they cannot be used.

use super::{LedgerError, ManualSa, SaDirection};
use esp::manual::ManualError;
use std::collections::{BTreeMap, BTreeSet};
use xfrm::REQIDS;

/// Manual SAs cannot be used as they are.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ManualSaError {
    /// Two SAs of one name and direction.
    #[error("manual SA {name:?} is there twice with direction {}; give one another name", direction.name())]
    Twice {
        /// Both.
        name: String,
        /// Both.
        direction: SaDirection,
    },
    /// One name, and two kinds of traffic.
    #[error(
        "the two manual SAs {0:?} are not of the same traffic: what is the source of one has to be the destination of the \
         other; correct it, or give one another name"
    )]
    Traffic(String),
    /// One key for two SAs.
    #[error(
        "manual SAs {first} and {second} have the same key: both would use the same nonces with it, which reveals what they \
         encrypt and lets others forge packets (RFC 4106 §3.1, RFC 8221 §3); give each a key of its own, or say \
         insecure_shared_key = true for both if this is a test"
    )]
    SharedKey {
        /// Name and direction.
        first: String,
        /// Name and direction.
        second: String,
    },
    /// A reqid that no operator may give.
    #[error(
        "manual SA {name:?} has reqid {reqid}: 0 is none, and {} to {} are those that vpnd gives itself; take one that no \
         other program uses, as 7",
        REQIDS.start(),
        REQIDS.end()
    )]
    Reqid {
        /// Its name.
        name: String,
        /// Its reqid.
        reqid: u32,
    },
    /// One name, and two reqids.
    #[error("the two manual SAs {0:?} have two reqids; give both the same, or neither one")]
    Reqids(String),
    /// Two names, and one reqid.
    #[error(
        "manual SAs {first:?} and {second:?} both have reqid {reqid}, by which the kernel would take the SAs of one for those \
         of the other; give each name its own"
    )]
    SharedReqid {
        /// A name.
        first: String,
        /// The other.
        second: String,
        /// Theirs.
        reqid: u32,
    },
    /// No sequence number is left.
    #[error(
        "manual SA {0:?} (out) has used all sequence numbers of its key, and numbers must not repeat; give both sides a new key, \
         or one with esn = true"
    )]
    Exhausted(String),
    /// An SA of that name and direction runs already.
    #[error(
        "manual SA {name:?} ({}) is there already; remove it first (vpnctl sa remove), or give the new one another name",
        direction.name()
    )]
    Runs {
        /// Its name.
        name: String,
        /// Its direction.
        direction: SaDirection,
    },
    /// No SA has that name.
    #[error("no manual SA has the name {name:?}; {}", known(names))]
    Unknown {
        /// The name.
        name: String,
        /// The names that there are.
        names: Vec<String>,
    },
    /// The gateway cannot have more SAs.
    #[error(
        "SAs keyed by hand cannot be added to a gateway with a data plane of the caller's; install them in that plane"
    )]
    NoLedger,
    /// The ledger of sequence numbers.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The plane refuses one.
    #[error(transparent)]
    Plane(#[from] ManualError),
}

policy::readable_debug!(ManualSaError);

fn known(names: &[String]) -> String {
    match names {
        [] => "there is none".to_owned(),
        names => format!("there are {}", names.join(", ")),
    }
}

/// Checks that SAs go together.
pub(super) fn check<'a>(sas: impl Iterator<Item = &'a ManualSa>) -> Result<(), ManualSaError> {
    let mut names: BTreeMap<&str, &ManualSa> = BTreeMap::new();
    let mut directions: BTreeSet<(&str, SaDirection)> = BTreeSet::new();
    let mut reqids: BTreeMap<u32, &str> = BTreeMap::new();
    // Of those with one key, one that does not consent to that where there is one.
    let mut keys: BTreeMap<&[u8], &ManualSa> = BTreeMap::new();
    for sa in sas {
        if !directions.insert((&sa.name, sa.direction)) {
            return Err(ManualSaError::Twice { name: sa.name.clone(), direction: sa.direction });
        }
        let other = *names.entry(&sa.name).or_insert(sa);
        if other.selectors != sa.selectors {
            return Err(ManualSaError::Traffic(sa.name.clone()));
        }
        if other.reqid != sa.reqid {
            return Err(ManualSaError::Reqids(sa.name.clone()));
        }
        if let Some(reqid) = sa.reqid {
            if reqid == 0 || REQIDS.contains(&reqid) {
                return Err(ManualSaError::Reqid { name: sa.name.clone(), reqid });
            }
            let first = *reqids.entry(reqid).or_insert(&sa.name);
            if first != sa.name {
                let (first, second) = (first.to_owned(), sa.name.clone());
                return Err(ManualSaError::SharedReqid { first, second, reqid });
            }
        }
        if let Some(other) = keys.get(sa.key.expose()) {
            let consent = sa.shared_key && other.shared_key;
            if sa.counts_nonces() && !consent {
                let [first, second] =
                    [*other, sa].map(|sa| format!("{:?} ({})", sa.name, sa.direction.name()));
                return Err(ManualSaError::SharedKey { first, second });
            }
        }
        let first = keys.entry(sa.key.expose()).or_insert(sa);
        if first.shared_key {
            *first = sa;
        }
    }
    Ok(())
}
