//! Algorithms in the words of strongSwan, `aes256gcm16-prfsha384-ecp384`, and of libreswan, `aes_gcm256-sha2_256;dh20`.

mod defaults;
mod fit;
mod words;

use super::dialect::Dialect;
use super::draft::{Child, Pfs as PfsSetting, Times};
use super::finding::Report;
use super::source::Value;
use fit::{Offer, fitted};
use policy::{
    AdditionalKe, ChildProposal, Group, IkeProposal, Lifetime, MAX_PROPOSALS, Pfs, Prf, Protection,
};
use words::{Lists, Phase, lists, push};

pub(super) use fit::fits_one_offer;

/// Phase 1 offers, at least one.
pub(super) fn ike(
    values: &[Value],
    dialect: Dialect,
    report: &mut Report,
) -> Option<Vec<IkeProposal>> {
    let mut offers = Vec::new();
    for value in values {
        for text in value.list() {
            if text.trim_end_matches('!') == "default" {
                offers.extend(offered(defaults::ike(dialect), true));
                continue;
            }
            let lists = lists(text, Phase::Ike, dialect, value, report);
            let Some(mut lists) = lists else { continue };
            if dialect == Dialect::Libreswan {
                complete(&mut lists, text, value, report);
            }
            let additional = lists.exchanges(value, report);
            tell_of_esp(&lists, value, report);
            tell_without_integrity(&lists, value, report);
            if let Some(proposals) = ike_proposal(lists, &additional) {
                offers.extend(offered(proposals, false));
            } else {
                let message = format!("the proposal {:?}", cut(text));
                let help =
                    "it needs a cipher, an integrity algorithm or PRF, and a group that vpnd has";
                report.dropped(&value.location, message, help);
            }
        }
    }
    if values.is_empty() {
        offers.extend(offered(defaults::ike(dialect), true));
    }
    let (proposals, missing) = fitted(offers);
    if missing > 0
        && let Some(value) = values.first()
    {
        let message = format!(
            "{} proposals, more than the {MAX_PROPOSALS} that vpnd takes: the {missing} least used are missing",
            proposals.len() + missing
        );
        report.changed(&value.location, message, "list those that the peer has");
    }
    (!proposals.is_empty()).then_some(proposals)
}

fn offered(proposals: Vec<IkeProposal>, is_default: bool) -> impl Iterator<Item = Offer> {
    proposals.into_iter().map(move |proposal| Offer { proposal, is_default })
}

/// Adds what libreswan adds to a proposal that names no hash or no group.
fn complete(lists: &mut Lists, text: &str, value: &Value, report: &mut Report) {
    if lists.ciphers.is_empty() {
        return;
    }
    if lists.integrity.is_empty() && lists.prf.is_empty() {
        lists.integrity = defaults::INTEGRITY_OF_LIBRESWAN.to_vec();
    }
    if !lists.names_group() {
        lists.groups = defaults::GROUPS_OF_LIBRESWAN.to_vec();
        let message = format!(
            "the proposal {:?} names no group: libreswan's default groups, without MODP-8192, are in the policy",
            cut(text)
        );
        report.changed(&value.location, message, "write the group of the peer in ike=");
    }
}

/// Ciphers for ESP alone are not in the offers for the IKE SA.
fn tell_of_esp(lists: &Lists, value: &Value, report: &mut Report) {
    for cipher in lists.ciphers.iter().filter(|cipher| cipher.row().ike.is_none()) {
        let message =
            format!("{}: vpnd has this cipher for ESP, and not for the IKE SA", cipher.row().name);
        let help =
            "the IKE SA needs another cipher that both ends know: docs/reference/algorithms.md";
        report.dropped(&value.location, message, help);
    }
}

/// Without an integrity algorithm, an offer has its AEAD ciphers alone. An offer without any of them is told as a whole.
fn tell_without_integrity(lists: &Lists, value: &Value, report: &mut Report) {
    if !lists.integrity.is_empty() || !lists.ciphers.iter().any(|cipher| cipher.is_aead()) {
        return;
    }
    for cipher in lists.ciphers.iter().filter(|cipher| !cipher.is_aead()) {
        let message = format!("{}: it needs an integrity algorithm", cipher.row().name);
        let help =
            "name one in this proposal, or write the cipher in a proposal of its own with one";
        report.dropped(&value.location, message, help);
    }
}

fn ike_proposal(mut lists: Lists, additional: &[AdditionalKe]) -> Option<Vec<IkeProposal>> {
    let encryption = lists.ciphers.iter().filter_map(|cipher| cipher.row().ike);
    let (aead, other): (Vec<_>, Vec<_>) = encryption.partition(|encryption| encryption.is_aead());
    if lists.prf.is_empty() {
        for integrity in &lists.integrity {
            push(&mut lists.prf, Prf::of(*integrity));
        }
    }
    if lists.prf.is_empty() || lists.groups.is_empty() {
        return None;
    }
    let (prf, groups) = (lists.prf, lists.groups);
    let mut kinds = vec![(aead, Vec::new())];
    if !lists.integrity.is_empty() {
        kinds.push((other, lists.integrity));
    }
    let proposals: Vec<IkeProposal> = kinds
        .into_iter()
        .filter(|(encryption, _)| !encryption.is_empty())
        .map(|(encryption, integrity)| IkeProposal {
            encryption,
            integrity,
            prf: prf.clone(),
            groups: groups.clone(),
            additional: additional.to_vec(),
        })
        .collect();
    (!proposals.is_empty()).then_some(proposals)
}

/// The proposals of a child, as they are collected.
#[derive(Default)]
struct Collected {
    offers: Vec<(Protection, bool)>,
    pfs: Pfs,
    is_begun: bool,
    /// True if proposals differ in their additional key exchanges.
    differs: bool,
}

impl Collected {
    /// Adds the offers of a proposal; `false` if it has none.
    fn add(&mut self, lists: Lists, additional: Vec<AdditionalKe>, child: &Child) -> bool {
        let before = self.offers.len();
        let esn = match lists.esn.as_slice() {
            [] => child.esn.clone(),
            some => some.to_vec(),
        };
        let protections = if child.ah { lists.ah() } else { lists.esp() };
        for protection in protections {
            esn.iter().for_each(|esn| push(&mut self.offers, (protection, *esn)));
        }
        if self.offers.len() == before {
            return false;
        }
        let without = lists.groups.is_empty() || lists.no_group;
        match self.is_begun {
            true => self.differs |= self.pfs.additional != additional,
            false => self.pfs.additional = additional,
        }
        if !self.is_begun && !without {
            self.pfs.offer.clone_from(&lists.groups);
        }
        self.is_begun = true;
        self.pfs.accept_none |= without;
        lists.groups.into_iter().for_each(|group| push(&mut self.pfs.accept, group));
        true
    }
}

/// Phase 2 offers, at least one, and the key exchange of rekeys. `ike`: the proposals for the IKE SA.
pub(super) fn child(
    child: &Child,
    ike: &[IkeProposal],
    dialect: Dialect,
    name: &str,
    report: &mut Report,
) -> Option<(Vec<ChildProposal>, Pfs)> {
    let values = &child.proposals;
    let mut collected = Collected::default();
    for value in values {
        for text in value.list() {
            if text.trim_end_matches('!') == "default" {
                collected.add(defaults::esp(dialect), Vec::new(), child);
                continue;
            }
            let lists = lists(text, Phase::Child, dialect, value, report);
            let Some(mut lists) = lists else { continue };
            let needs = !child.ah && lists.ciphers.iter().any(|cipher| !cipher.is_aead());
            if dialect == Dialect::Libreswan && needs && lists.integrity.is_empty() {
                lists.integrity = defaults::INTEGRITY_OF_LIBRESWAN.to_vec();
            }
            let additional = lists.exchanges(value, report);
            if !child.ah {
                tell_without_integrity(&lists, value, report);
            }
            if !collected.add(lists, additional, child) {
                let message = format!("the proposal {:?}", cut(text));
                let help = match child.ah {
                    true => "it needs an integrity algorithm that vpnd has",
                    false => {
                        "it needs a cipher that vpnd has, and an integrity algorithm unless that is AEAD"
                    }
                };
                report.dropped(&value.location, message, help);
            }
        }
    }
    if values.is_empty() {
        collected.add(defaults::esp(dialect), Vec::new(), child);
    }
    let Collected { offers, mut pfs, differs, .. } = collected;
    let location = values.first().map_or(&child.location, |value| &value.location);
    if differs {
        let message =
            "proposals with different additional key exchanges: those of the first are taken";
        report.changed(location, message, "write the same in each");
    }
    match &child.pfs {
        PfsSetting::OfProposals => {}
        PfsSetting::Always(setting) => {
            let location = setting.as_ref().unwrap_or(location);
            of_ike(&mut pfs, ike, location, report);
        }
        PfsSetting::Never(location) => {
            if !pfs.accept.is_empty() {
                let message = "pfs=no: the groups of esp= are of no use";
                report.dropped(location, message, "write pfs=yes on both sides for PFS");
            }
            pfs = Pfs { accept_none: true, ..Pfs::default() };
        }
    }
    // A responder that accepts nothing else takes what it would itself offer.
    pfs.accept_none |= pfs.offer.is_empty();
    if offers.len() > MAX_PROPOSALS {
        let message = format!(
            "{} proposals, more than the {MAX_PROPOSALS} that vpnd takes: the last are missing",
            offers.len()
        );
        report.changed(location, message, "list those that the peer has");
    }
    let lifetime = lifetime(&child.times);
    let proposals: Vec<ChildProposal> = offers
        .into_iter()
        .take(MAX_PROPOSALS)
        .map(|(protection, esn)| ChildProposal { name: name.to_owned(), protection, esn, lifetime })
        .collect();
    (!proposals.is_empty()).then_some((proposals, pfs))
}

/// libreswan takes the group of the IKE SA where esp= names none.
fn of_ike(
    pfs: &mut Pfs,
    ike: &[IkeProposal],
    location: &super::source::Location,
    report: &mut Report,
) {
    pfs.accept_none = false;
    if !pfs.accept.is_empty() {
        return;
    }
    for group in ike.iter().flat_map(|proposal| &proposal.groups) {
        push(&mut pfs.accept, *group);
    }
    pfs.offer = pfs.accept.iter().take(1).copied().collect::<Vec<Group>>();
    if let Some(group) = pfs.offer.first() {
        let message = format!(
            "pfs=yes and esp= without a group: new keys of the Child SA are exchanged with {group}, the first of ike="
        );
        let help =
            "libreswan takes the group that the IKE SA has; write the group in esp= to be sure";
        report.changed(location, message, help);
    }
}

/// Returns `true` if a daemon of the other dialect would take other groups.
pub(super) fn depends_on_dialect(ike: &[Value], child: &Child) -> bool {
    !words::names_groups(&child.proposals, Phase::Child)
        || !(ike.is_empty() || words::names_groups(ike, Phase::Ike))
}

/// A lifetime as a policy can say it: whole minutes and kilobytes, the overlap in percent.
pub(super) fn lifetime(times: &Times) -> Lifetime {
    let minutes = times.hard.as_secs().div_ceil(60).clamp(1, 525_600);
    let hard = std::time::Duration::from_secs(minutes * 60);
    let soft = times.soft.min(hard).as_secs();
    let percent = (hard.as_secs() - soft) * 100 / hard.as_secs();
    let bytes = times.bytes.map(|(_, hard)| hard.div_ceil(1024).clamp(1, 0xffff_ffff) * 1024);
    let overlap_percent = u8::try_from(percent.clamp(1, 50)).unwrap_or(50);
    Lifetime { bytes, overlap_percent, ..Lifetime::new(hard) }
}

fn cut(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use crate::source::{Disk, File};
    use crate::{Format, Options, convert};
    use policy::EspEncryption;

    /// The findings about a connection whose settings of proposals are these.
    fn findings(ike: &str, esp: &str) -> Vec<String> {
        let text = format!(
            "connections {{\n  site {{\n    local_addrs = 192.0.2.1\n    remote_addrs = 192.0.2.2\n    \
             proposals = {ike}\n    local {{ auth = psk }}\n    remote {{ auth = psk }}\n    children {{\n      \
             lan {{\n        esp_proposals = {esp}\n        local_ts = 10.1.0.0/16\n        \
             remote_ts = 10.2.0.0/16\n      }}\n    }}\n  }}\n}}\n\
             secrets {{ ike-site {{ secret = \"not a good one\" }} }}\n"
        );
        let file = File { name: "swanctl.conf".into(), text: text.into() };
        let converted =
            convert(Format::Swanctl, file, None, &mut Disk::default(), &Options::default());
        let converted = converted.expect("the file is well-formed");
        assert_eq!(converted.tunnels, (1, 1));
        let of_proposals = converted.findings.iter().filter(|f| [5, 10].contains(&f.location.line));
        of_proposals.map(ToString::to_string).collect()
    }

    #[test]
    fn no_cipher_is_dropped_in_silence() {
        let (ike, esp) = ("aes256-sha256-ecp384", "aes256gcm16");
        assert_eq!(findings(ike, esp), [""; 0]);
        // Ciphers that protect ESP alone.
        let of_esp = EspEncryption::ALL.into_iter().filter(|cipher| cipher.row().ike.is_none());
        for cipher in of_esp.filter(|cipher| policy::is_built(*cipher)) {
            let (word, name) = (cipher.row().strongswan[0], cipher.row().name);
            let said = findings(&format!("aes256-{word}-sha256-ecp384"), esp);
            assert_eq!(said.len(), 1, "{word}: {said:?}");
            let expected = format!("swanctl.conf:5: not carried over: {name}: ");
            assert!(said[0].starts_with(&expected), "{said:?}");
        }
        // Ciphers without an integrity algorithm, beside others that have their own.
        let said = findings("aes256gcm16-aes256-prfsha384-ecp384", esp);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("swanctl.conf:5: not carried over: AES-CBC-256"), "{said:?}");
        let said = findings(ike, "aes256gcm16-aes128");
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("swanctl.conf:10: not carried over: AES-CBC-128"), "{said:?}");
    }
}
