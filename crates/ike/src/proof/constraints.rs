//! Name constraints: the names that an authority may give to those below it (RFC 5280 §4.2.1.10).
//!
//! rustls-webpki checks constraints of domain names and addresses. It refuses each certificate that has a name of
//! another type for which there is a constraint, and each one below a constraint of directory names.
//! `shown.rs` hides these constraints from rustls-webpki. [`check`] checks the constraints of all types.

mod within;

use super::certificate::Certificate;
use policy::DistinguishedName;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use within::{Within, within};
use x509_cert::Certificate as X509;
use x509_cert::der::asn1::{Ia5String, ObjectIdentifier};
use x509_cert::der::{self, Decode, Encode};
use x509_cert::ext::pkix::constraints::name::GeneralSubtree;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{NameConstraints, SubjectAltName};

/// Most comparisons of names with constraints on one path.
const MOST_COMPARISONS: usize = 100_000;
/// Constraints that a message lists.
const MOST_LISTED: usize = 5;
const EMAIL_ADDRESS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.1");

/// Checks the names of each certificate of a path against the constraints of all authorities above it. The path begins
/// with the certificate to be proved and ends with the authority.
///
/// # Errors
/// The text for the operator: certificate, name and constraint, and what to do.
pub(super) fn check(path: &[&Certificate]) -> Result<(), String> {
    let mut comparisons = 0;
    for (place, authority) in path.iter().enumerate().filter(|(_, c)| c.constrains_names()) {
        let constraints = Constraints::read(authority).map_err(|e| {
            format!(
                "the certificate {authority} has name constraints that cannot be read: {e}; they have a type that is \
                 not supported here, or are damaged: have it issued without them"
            )
        })?;
        // RFC 5280 §6.1.3 (b), (c): a self-issued certificate is checked only if it is the last one.
        let below = path[..place].iter().enumerate();
        for (_, certificate) in below.filter(|(place, c)| *place == 0 || !c.is_self_issued()) {
            let names = names(certificate).map_err(|e| {
                format!("the certificate {certificate} has a name that cannot be read: {e}")
            })?;
            comparisons += names.len() * constraints.len();
            if comparisons > MOST_COMPARISONS {
                return Err(format!(
                    "the certificate {certificate} has more names than can be compared with the name constraints of \
                     {authority}; have it issued with fewer names"
                ));
            }
            for name in &names {
                constraints
                    .check(name)
                    .map_err(|breach| breach.text(certificate, name, authority))?;
            }
        }
    }
    Ok(())
}

struct Constraints {
    permitted: Vec<GeneralSubtree>,
    excluded: Vec<GeneralSubtree>,
}

/// The reason why an authority may not give a name.
enum Breach<'a> {
    /// No permitted subtree of the name's type has it.
    NotPermitted(Vec<&'a GeneralName>),
    Excluded(&'a GeneralName),
    /// The name cannot be compared with the constraint for this reason.
    Unclear(&'a GeneralName, &'static str),
}

impl Constraints {
    fn read(authority: &Certificate) -> der::Result<Self> {
        let certificate = X509::from_der(authority.der())?;
        let extension = certificate.tbs_certificate().get_extension::<NameConstraints>()?;
        let (permitted, excluded) = match extension {
            Some((_, list)) => (list.permitted_subtrees, list.excluded_subtrees),
            None => (None, None),
        };
        Ok(Self {
            permitted: permitted.unwrap_or_default(),
            excluded: excluded.unwrap_or_default(),
        })
    }

    fn len(&self) -> usize {
        self.permitted.len() + self.excluded.len()
    }

    fn check(&self, name: &GeneralName) -> Result<(), Breach<'_>> {
        for subtree in &self.excluded {
            match compare(name, subtree) {
                Some(Within::Yes) => return Err(Breach::Excluded(&subtree.base)),
                Some(Within::Unclear(why)) => return Err(Breach::Unclear(&subtree.base, why)),
                Some(Within::No) | None => {}
            }
        }
        let of_type = self.permitted.iter().filter_map(|s| Some((&s.base, compare(name, s)?)));
        let of_type: Vec<(&GeneralName, Within)> = of_type.collect();
        if of_type.is_empty() || of_type.iter().any(|(_, within)| *within == Within::Yes) {
            return Ok(());
        }
        let unclear = of_type.iter().find_map(|(base, within)| match within {
            Within::Unclear(why) => Some(Breach::Unclear(base, why)),
            Within::Yes | Within::No => None,
        });
        let bases = of_type.iter().map(|(base, _)| *base).collect();
        Err(unclear.unwrap_or(Breach::NotPermitted(bases)))
    }
}

/// `None` if the constraint is about another type of name.
fn compare(name: &GeneralName, subtree: &GeneralSubtree) -> Option<Within> {
    let result = within(name, &subtree.base)?;
    if subtree.minimum != 0 || subtree.maximum.is_some() {
        return Some(Within::Unclear("a minimum or maximum of a name constraint is not supported"));
    }
    Some(result)
}

impl Breach<'_> {
    fn text(
        &self,
        certificate: &Certificate,
        name: &GeneralName,
        authority: &Certificate,
    ) -> String {
        let name = format!("the certificate {certificate} has {}", described(name));
        let authority = match authority.subject() {
            Some(subject) => subject.to_string(),
            None => authority.to_string(),
        };
        match self {
            Self::NotPermitted(bases) => {
                let mut list: Vec<String> =
                    bases.iter().take(MOST_LISTED).map(|base| written(base, true)).collect();
                if bases.len() > MOST_LISTED {
                    list.push(format!("and {} more", bases.len() - MOST_LISTED));
                }
                format!(
                    "{name}, a name that its authority may not give: the name constraints of {authority} permit only \
                     {}; have it issued with a name that is permitted, or by another authority",
                    list.join(", ")
                )
            }
            Self::Excluded(base) => format!(
                "{name}, a name that its authority may not give: the name constraints of {authority} exclude {}; have \
                 it issued without this name, or by another authority",
                written(base, true)
            ),
            Self::Unclear(base, why) => format!(
                "{name}, and {authority} has a name constraint of {}: {why}; have it issued without this name, or by \
                 an authority without this constraint",
                described_base(base)
            ),
        }
    }
}

/// All names of a certificate to which constraints apply. The subject counts as a directory name if it is not empty,
/// and a mail address in it as a mail address.
fn names(certificate: &Certificate) -> der::Result<Vec<GeneralName>> {
    let certificate = X509::from_der(certificate.der())?;
    let tbs = certificate.tbs_certificate();
    let alternatives = tbs.get_extension::<SubjectAltName>()?;
    let mut names = alternatives.map(|(_, SubjectAltName(names))| names).unwrap_or_default();
    for attribute in tbs.subject().iter().filter(|a| a.oid == EMAIL_ADDRESS) {
        let text = String::from_utf8_lossy(attribute.value.value());
        names.push(GeneralName::Rfc822Name(Ia5String::new(text.as_ref())?));
    }
    if !tbs.subject().is_empty() {
        names.push(GeneralName::DirectoryName(tbs.subject().clone()));
    }
    Ok(names)
}

/// A name with its type and article.
fn described(name: &GeneralName) -> String {
    format!("the {} {}", kind(name), written(name, false))
}

fn described_base(base: &GeneralName) -> String {
    format!("the {} {}", kind(base), written(base, true))
}

fn kind(name: &GeneralName) -> &'static str {
    match name {
        GeneralName::OtherName(_) => "otherName",
        GeneralName::Rfc822Name(_) => "mail address",
        GeneralName::DnsName(_) => "domain name",
        GeneralName::DirectoryName(_) => "directory name",
        GeneralName::EdiPartyName(_) => "ediPartyName",
        GeneralName::UniformResourceIdentifier(_) => "URI",
        GeneralName::IpAddress(_) => "IP address",
        GeneralName::RegisteredId(_) => "registeredID",
    }
}

/// The name, or the subtree of a constraint, without its type. A text of the certificate cannot add lines to the log.
fn written(name: &GeneralName, is_base: bool) -> String {
    let empty = if is_base { "every one" } else { "without text" };
    match name {
        GeneralName::Rfc822Name(name) => shown_or(name.as_str(), empty),
        GeneralName::DnsName(name) => shown_or(name.as_str(), empty),
        // The empty base of URIs does not match every one: it cannot be compared.
        GeneralName::UniformResourceIdentifier(name) => shown_or(name.as_str(), "without text"),
        GeneralName::DirectoryName(name) if name.is_empty() => empty.to_owned(),
        GeneralName::DirectoryName(name) => {
            let name = name.to_der().ok().and_then(|der| DistinguishedName::from_der(&der).ok());
            name.map_or_else(|| "that is too long to show".to_owned(), |name| name.to_string())
        }
        GeneralName::IpAddress(octets) => address(octets.as_bytes(), is_base),
        GeneralName::OtherName(name) => name.type_id.to_string(),
        GeneralName::RegisteredId(id) => id.to_string(),
        GeneralName::EdiPartyName(_) => "of an EDI party".to_owned(),
    }
}

fn shown_or(text: &str, empty: &str) -> String {
    match text {
        "" => empty.to_owned(),
        text => text.escape_debug().to_string(),
    }
}

/// An address, or an address and a mask.
fn address(octets: &[u8], is_base: bool) -> String {
    let (address, mask) =
        if is_base { octets.split_at(octets.len() / 2) } else { (octets, [].as_slice()) };
    let read = [address, mask].map(|octets| {
        let v4 = <[u8; 4]>::try_from(octets).map(|a| Ipv4Addr::from(a).to_string());
        v4.or_else(|_| <[u8; 16]>::try_from(octets).map(|a| Ipv6Addr::from(a).to_string()))
    });
    match read {
        [Ok(address), Ok(mask)] => format!("{address}/{mask}"),
        [Ok(address), Err(_)] => address,
        [Err(_), _] => octets.iter().fold(String::new(), |mut text, octet| {
            let _ = write!(text, "{octet:02x}");
            text
        }),
    }
}

/// Returns `true` if rustls-webpki compares names of this type with constraints.
pub(super) fn is_of_library(subtree: &GeneralSubtree) -> bool {
    matches!(subtree.base, GeneralName::DnsName(_) | GeneralName::IpAddress(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Ia5String {
        Ia5String::new(text).expect("ASCII")
    }

    fn uri(uri: &str) -> GeneralName {
        GeneralName::UniformResourceIdentifier(text(uri))
    }

    fn mail(mail: &str) -> GeneralName {
        GeneralName::Rfc822Name(text(mail))
    }

    fn subtrees(bases: &[GeneralName]) -> Vec<GeneralSubtree> {
        let subtree =
            |base: &GeneralName| GeneralSubtree { base: base.clone(), minimum: 0, maximum: None };
        bases.iter().map(subtree).collect()
    }

    fn permit(bases: &[GeneralName]) -> Constraints {
        Constraints { permitted: subtrees(bases), excluded: Vec::new() }
    }

    fn exclude(bases: &[GeneralName]) -> Constraints {
        Constraints { permitted: Vec::new(), excluded: subtrees(bases) }
    }

    #[test]
    fn a_constraint_that_is_no_domain_refuses_each_name_of_its_type() {
        let (site, ops) = (uri("https://vpn.example.net/"), mail("ops@vpn.example.net"));
        for (name, other, base) in [
            (&site, &ops, uri("")),
            (&site, &ops, uri(".")),
            (&site, &ops, uri("*.example.net")),
            (&site, &ops, uri("https://vpn.example.net/")),
            (&ops, &site, mail(".")),
            (&ops, &site, mail("*.example.net")),
            (&ops, &site, mail("https://vpn.example.net")),
            (&ops, &site, mail("mailto:ops@vpn.example.net")),
        ] {
            let base = [base];
            for constraints in [permit(&base), exclude(&base)] {
                let result = constraints.check(name);
                assert!(matches!(result, Err(Breach::Unclear(..))), "{base:?}");
                assert!(constraints.check(other).is_ok(), "{base:?}");
            }
        }
    }

    #[test]
    fn another_constraint_may_still_permit_a_name() {
        let constraints = permit(&[uri(""), uri("vpn.example.net")]);
        assert!(constraints.check(&uri("https://vpn.example.net/")).is_ok());
        let constraints = exclude(&[uri("vpn.example.org"), uri("")]);
        let result = constraints.check(&uri("https://vpn.example.net/"));
        assert!(matches!(result, Err(Breach::Unclear(..))));
    }

    #[test]
    fn the_empty_mail_address_permits_or_excludes_every_one() {
        let ops = mail("ops@vpn.example.net");
        assert!(permit(&[mail("")]).check(&ops).is_ok());
        assert!(matches!(exclude(&[mail("")]).check(&ops), Err(Breach::Excluded(_))));
    }

    #[test]
    fn an_empty_text_is_called_every_one_only_if_it_matches_every_one() {
        assert_eq!(described_base(&mail("")), "the mail address every one");
        assert_eq!(described_base(&GeneralName::DnsName(text(""))), "the domain name every one");
        assert_eq!(described_base(&uri("")), "the URI without text");
        for name in [mail(""), uri(""), GeneralName::DnsName(text(""))] {
            assert!(described(&name).ends_with("without text"), "{name:?}");
        }
    }
}
