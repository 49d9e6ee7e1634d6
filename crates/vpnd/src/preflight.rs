//! The remarks about a policy before it is in force: one table for every entrance that a policy has. These are the
//! start, `vpnd check` and `vpnctl policy check`, a reload, a change of the policy store by a running daemon, and one
//! without a daemon.

use crate::certificates::{self, Certificates};
use crate::config::Config;
use crate::{crypto, filter_advice, guard_advice, offload_advice};
use ::crypto::CryptoProviders;
use esp::filter::Filter;
use policy::Policy;

/// Everything that a policy is judged with.
pub(crate) struct Surroundings<'a> {
    /// The settings of the daemon that will run the policy.
    pub config: &'a Config,
    /// The filter that will be in force with it.
    pub filter: &'a Filter,
    /// The providers of ciphers.
    pub providers: &'a CryptoProviders,
    /// The certificates; `None`: no tunnel uses any.
    pub certificates: Option<&'a Certificates>,
}

type Kind = fn(&Policy, &Surroundings<'_>) -> Vec<String>;

/// The kinds of remarks, in the order in which they are told.
const KINDS: [Kind; 5] = [
    |policy, with| filter_advice::of(policy, with.filter),
    |policy, with| guard_advice::of(policy, with.config),
    |policy, with| with.certificates.map_or_else(Vec::new, |known| known.remarks(policy)),
    |policy, with| crypto::remarks::of(policy, with.providers),
    |policy, with| offload_advice::of(policy, &with.config.planes(), &offload_advice::drivers()),
];

/// All remarks.
pub(crate) fn remarks(policy: &Policy, with: &Surroundings<'_>) -> Vec<String> {
    KINDS.iter().flat_map(|kind| kind(policy, with)).collect()
}

/// All remarks while no daemon runs, also those about files of certificates that cannot be used.
pub(crate) fn before_the_start(policy: &Policy, config: &Config) -> Vec<String> {
    let certificates =
        certificates::are_used(policy).then(|| certificates::read(&config.certificates));
    let mut told: Vec<String> =
        certificates.iter().flat_map(|known| known.errors.iter().cloned()).collect();
    let with = Surroundings {
        config,
        filter: &config.filter.filter(),
        providers: &CryptoProviders::new(config.crypto.choice()),
        certificates: certificates.as_ref(),
    };
    told.extend(remarks(policy, &with));
    told
}
