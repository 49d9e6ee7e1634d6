//! The remarks about a policy, a configuration and this host: one table for every entrance that a policy has.
//!
//! ```text
//!  vpnd start ──────┐
//!  vpnctl reload ───┤ refuse()      the policy and the configuration alone: the daemon would not run them
//!  vpnctl policy ───┼─ preflight()  with the filter, the certificates, the address families, the network cards
//!  vpnd check ──────┤ of_gateway()  what the running gateway knows about this host
//!  vpnctl status ───┤
//!  vpnd exec, proxy ┘ in_process()  the rows that need nothing of this host
//! ```

mod algorithms;
mod families;
pub(crate) mod filter;
mod guard;
mod kernel_traffic;
pub(crate) mod manual;
mod offload;
mod reachability;

use crate::certificates::{self, Certificates};
use crate::config::{Config, FamiliesSection, FilterSection};
use crate::families::FamilySettings;
use crate::filter::FilterSettings;
use crate::remark::{DaemonState, Remark, Severity, Told};
use ::crypto::CryptoProviders;
use esp::families::Families;
use esp::filter::Filter;
use host::policy_file::PolicyFile;
use ike::failure::facts::Unsendable;
use policy::Policy;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// A row of the table: a kind of remark.
struct Kind {
    /// Its stable name.
    name: &'static str,
    severity: Severity,
    /// Also a gateway inside of a process is judged so, which uses nothing of the host: `vpnd exec` and `vpnd proxy`.
    in_process: bool,
    judge: Judge,
}

/// The function that finds the remarks of a kind, by what it needs to know.
enum Judge {
    /// The policy and the configuration.
    Texts(fn(&PolicyFile, &Config) -> Vec<Told>),
    /// All that is known before the gateway runs.
    Surroundings(fn(&Policy, &Surroundings<'_>) -> Vec<Told>),
    /// The tunnels that the running gateway cannot set up from this host.
    Gateway(fn(&[(String, Unsendable)]) -> Vec<Told>),
}

/// The kinds, in the order in which they are told.
static KINDS: [Kind; 12] = [
    Kind::texts("kernel_traffic", kernel_traffic::judge),
    Kind::new("filter_order", Severity::Note, |policy, with| filter::order(policy, with.filter)),
    Kind::new("guard", Severity::Note, |policy, with| guard::judge(policy, with.config)),
    Kind::new("families", Severity::Warning, |policy, with| families::judge(policy, with.families))
        .also_in_process(),
    Kind::new("certificates", Severity::Warning, |policy, with| {
        with.certificates.map_or_else(Vec::new, |known| known.remarks(policy))
    })
    .also_in_process(),
    Kind::new("algorithms", Severity::Note, |policy, with| {
        algorithms::judge(policy, with.providers)
    })
    .also_in_process(),
    Kind::new(OFFLOAD, Severity::Note, |policy, with| {
        offload::judge(policy, &with.config.planes(), &offload::drivers())
    }),
    Kind::new("manual_sas", Severity::Note, |_, with| manual::configured(with.config)),
    Kind::new("filter_kept", Severity::Note, |_, with| {
        with.filter_settings.remarks(with.filter_section, with.daemon)
    }),
    Kind::new("filter_denies", Severity::Note, |_, with| {
        let denial = match with.daemon {
            DaemonState::Running => filter::denial(with.filter, &with.config.esp.device),
            DaemonState::Absent => filter::denial_to_come(with.filter),
        };
        denial.into_iter().collect()
    }),
    Kind::new("ignored_files", Severity::Note, |_, with| {
        let ignored = [with.filter_settings.ignored(), with.family_settings.ignored()];
        ignored.into_iter().flatten().map(Told::of_daemon).collect()
    }),
    Kind::gateway("reachability", Severity::Warning, reachability::judge),
];

/// The kind of remarks that `vpnctl status` shows beside the network cards.
pub(crate) const OFFLOAD: &str = "offload";

impl Kind {
    /// A kind because of which the daemon does not run a policy.
    const fn texts(name: &'static str, judge: fn(&PolicyFile, &Config) -> Vec<Told>) -> Self {
        Self { name, severity: Severity::Refusal, in_process: false, judge: Judge::Texts(judge) }
    }

    const fn new(
        name: &'static str,
        severity: Severity,
        judge: fn(&Policy, &Surroundings<'_>) -> Vec<Told>,
    ) -> Self {
        Self { name, severity, in_process: false, judge: Judge::Surroundings(judge) }
    }

    const fn gateway(
        name: &'static str,
        severity: Severity,
        judge: fn(&[(String, Unsendable)]) -> Vec<Told>,
    ) -> Self {
        Self { name, severity, in_process: false, judge: Judge::Gateway(judge) }
    }

    const fn also_in_process(self) -> Self {
        Self { in_process: true, ..self }
    }

    fn remark(&self, told: Told) -> Remark {
        Remark::of(self.name, self.severity, told)
    }
}

/// Everything that a policy is judged with.
pub(crate) struct Surroundings<'a> {
    /// The settings of the daemon that will run the policy.
    pub config: &'a Config,
    /// The daemon, which carries out the cures.
    pub daemon: DaemonState,
    /// The section `[filter]` in force, which a reload may have replaced.
    pub filter_section: &'a FilterSection,
    /// The defaults of the filter that outlive a restart.
    pub filter_settings: &'a FilterSettings,
    /// The filter that will be in force with the policy.
    pub filter: &'a Filter,
    /// The address families that outlive a restart.
    pub family_settings: &'a FamilySettings,
    /// The address families that tunnels may use.
    pub families: Families,
    /// The providers of ciphers.
    pub providers: &'a CryptoProviders,
    /// The certificates; `None`: no tunnel uses any.
    pub certificates: Option<&'a Certificates>,
}

/// The daemon does not run a policy: all remarks of that severity, one text for all.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(String);

/// Refuses a policy that the daemon would not run.
///
/// # Errors
/// With every reason.
pub(crate) fn refuse(file: &PolicyFile, config: &Config) -> Result<(), Refused> {
    let remarks = KINDS.iter().flat_map(|kind| {
        let told = match kind.judge {
            Judge::Texts(judge) => judge(file, config),
            Judge::Surroundings(_) | Judge::Gateway(_) => Vec::new(),
        };
        told.into_iter().map(move |told| kind.remark(told).to_string())
    });
    let reasons: Vec<String> = remarks.collect();
    if reasons.is_empty() { Ok(()) } else { Err(Refused(reasons.join("\n"))) }
}

/// The remarks about a policy before a gateway runs it.
pub(crate) fn preflight(policy: &Policy, with: &Surroundings<'_>) -> Vec<Remark> {
    judged(policy, with, |_| true)
}

/// The remarks that a gateway adds which runs the policy: the tunnels that it cannot set up from this host.
pub(crate) fn of_gateway(lacking: &[(String, Unsendable)]) -> Vec<Remark> {
    let remarks = KINDS.iter().flat_map(|kind| {
        let told = match kind.judge {
            Judge::Gateway(judge) => judge(lacking),
            Judge::Texts(_) | Judge::Surroundings(_) => Vec::new(),
        };
        told.into_iter().map(move |told| kind.remark(told))
    });
    remarks.collect()
}

/// The remarks while no daemon runs, after those about files of certificates that cannot be used.
pub(crate) fn before_the_start(policy: &Policy, config: &Config) -> Vec<String> {
    let certificates =
        certificates::are_used(policy).then(|| certificates::read(&config.certificates));
    let file = readable(&config.filter.file);
    let (filter_settings, _) =
        FilterSettings::read(&FilterSection { file, ..config.filter.clone() });
    let file = readable(&config.families.file);
    let (family_settings, _) =
        FamilySettings::read(&FamiliesSection { file, ..config.families.clone() });
    let with = Surroundings {
        config,
        daemon: DaemonState::Absent,
        filter_section: &config.filter,
        filter: &filter_settings.filter(&config.filter),
        filter_settings: &filter_settings,
        families: family_settings.at_start(),
        family_settings: &family_settings,
        providers: &CryptoProviders::new(config.crypto.choice()),
        certificates: certificates.as_ref(),
    };
    let errors = certificates.iter().flat_map(|known| known.errors.iter().cloned());
    errors.chain(texts(preflight(policy, &with))).collect()
}

/// A file that an ordinary user may not read counts as absent, which is an empty path: the daemon can read it.
fn readable(file: &Path) -> PathBuf {
    match File::open(file) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => PathBuf::new(),
        _ => file.to_owned(),
    }
}

/// The remarks about a policy of a gateway inside of this process.
pub(crate) fn in_process(
    policy: &Policy,
    config: &Config,
    certificates: &Certificates,
) -> Vec<Remark> {
    let with = Surroundings {
        config,
        daemon: DaemonState::Absent,
        filter_section: &config.filter,
        filter: &Filter::default(),
        filter_settings: &FilterSettings::default(),
        families: config.families.families(),
        family_settings: &FamilySettings::default(),
        providers: &CryptoProviders::new(config.crypto.choice()),
        certificates: Some(certificates),
    };
    judged(policy, &with, |kind| kind.in_process)
}

/// The whole texts of remarks.
pub(crate) fn texts(remarks: Vec<Remark>) -> impl Iterator<Item = String> {
    remarks.into_iter().map(|remark| remark.to_string())
}

fn judged(policy: &Policy, with: &Surroundings<'_>, counts: fn(&Kind) -> bool) -> Vec<Remark> {
    let remarks = KINDS.iter().filter(|kind| counts(kind)).flat_map(|kind| {
        let told = match kind.judge {
            Judge::Surroundings(judge) => judge(policy, with),
            Judge::Texts(_) | Judge::Gateway(_) => Vec::new(),
        };
        told.into_iter().map(move |told| kind.remark(told))
    });
    remarks.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn kinds_have_names_of_their_own() {
        let names: BTreeSet<&str> = KINDS.iter().map(|kind| kind.name).collect();
        assert_eq!(names.len(), KINDS.len());
    }
}
