//! Comparison of a name with the base of a subtree of the same type (RFC 5280 §4.2.1.10).

use policy::DistinguishedName;
use x509_cert::der::Encode;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;

/// SmtpUTF8Mailbox (RFC 9598 §3): a mail address, for which the constraints of mail addresses count (§6).
const UTF8_MAILBOX: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.8.9");

const NOT_SUPPORTED: &str = "name constraints of this type are not supported";
const MAILBOX_NOT_SUPPORTED: &str =
    "name constraints of mail addresses are not supported for names of this type";
const NO_HOST: &str = "the mail address has no host to compare";
const NO_DOMAIN_NAME: &str = "the URI has no domain name as its host to compare";
const WILDCARD: &str = "the wildcard has names inside and outside of it";
const NO_BASE: &str =
    "the constraint has no form of RFC 5280 §4.2.1.10, such as example.net or .example.net";
const OTHER_MAILBOX: &str =
    "a mailbox with quotes, special characters or nothing before its @ cannot be compared";
const NO_MASK: &str = "the constraint is no address with its mask";
const OTHER_TEXT: &str =
    "their texts have encodings that cannot be compared (UTF8String and PrintableString can)";

/// Whether a name is within a subtree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Within {
    Yes,
    No,
    /// Cannot be decided, for this reason.
    Unclear(&'static str),
}

impl From<bool> for Within {
    fn from(is_within: bool) -> Self {
        if is_within { Self::Yes } else { Self::No }
    }
}

/// `None` if the subtree is about names of another type.
pub(super) fn within(name: &GeneralName, base: &GeneralName) -> Option<Within> {
    Some(match (name, base) {
        (GeneralName::Rfc822Name(name), GeneralName::Rfc822Name(base)) => {
            mail(name.as_str(), base.as_str())
        }
        (GeneralName::DnsName(name), GeneralName::DnsName(base)) => {
            domain(name.as_str(), base.as_str())
        }
        (
            GeneralName::UniformResourceIdentifier(name),
            GeneralName::UniformResourceIdentifier(base),
        ) => match host_of_uri(name.as_str()) {
            Some(found) => host(found, base.as_str()),
            None => Within::Unclear(NO_DOMAIN_NAME),
        },
        (GeneralName::IpAddress(name), GeneralName::IpAddress(base)) => {
            address(name.as_bytes(), base.as_bytes())
        }
        (GeneralName::DirectoryName(name), GeneralName::DirectoryName(base)) => {
            directory(name, base)
        }
        (GeneralName::OtherName(name), GeneralName::OtherName(base)) => {
            return (name.type_id == base.type_id).then_some(Within::Unclear(NOT_SUPPORTED));
        }
        (GeneralName::OtherName(name), GeneralName::Rfc822Name(_)) => {
            return (name.type_id == UTF8_MAILBOX)
                .then_some(Within::Unclear(MAILBOX_NOT_SUPPORTED));
        }
        (GeneralName::EdiPartyName(_), GeneralName::EdiPartyName(_))
        | (GeneralName::RegisteredId(_), GeneralName::RegisteredId(_)) => {
            Within::Unclear(NOT_SUPPORTED)
        }
        (
            GeneralName::Rfc822Name(_)
            | GeneralName::DnsName(_)
            | GeneralName::UniformResourceIdentifier(_)
            | GeneralName::IpAddress(_)
            | GeneralName::DirectoryName(_)
            | GeneralName::OtherName(_)
            | GeneralName::EdiPartyName(_)
            | GeneralName::RegisteredId(_),
            _,
        ) => return None,
    })
}

/// A base is a mailbox at a host, a host, or a domain with a leading period. The empty base matches every mail address.
/// Only the local part of a mailbox is case-sensitive.
fn mail(name: &str, base: &str) -> Within {
    let Some((local, found)) =
        name.rsplit_once('@').filter(|(local, found)| !local.is_empty() && is_domain_name(found))
    else {
        return Within::Unclear(NO_HOST);
    };
    match base.rsplit_once('@') {
        None if base.is_empty() => Within::Yes,
        None => host(found, base),
        Some((_, base)) if base.starts_with('.') => Within::Unclear(NO_BASE),
        Some((mailbox, base)) => match host(found, base) {
            Within::Yes if local == mailbox => Within::Yes,
            Within::Yes if is_mailbox(local) && is_mailbox(mailbox) => Within::No,
            Within::Yes => Within::Unclear(OTHER_MAILBOX),
            other => other,
        },
    }
}

/// Returns `true` if the local part has no quotes, which can write the same mailbox in another way: a Dot-string
/// (RFC 5321 §4.1.2).
fn is_mailbox(local: &str) -> bool {
    local.split('.').all(|atom| {
        !atom.is_empty()
            && atom
                .chars()
                .all(|c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c))
    })
}

/// A base with a leading period matches every host below the domain; any other base matches one host. An exclusion with
/// another base, such as a whole URI or nothing, must not be skipped: RFC 5280 §4.2.1.10 wants a domain name.
fn host(name: &str, base: &str) -> Within {
    if !is_domain_name(base.strip_prefix('.').unwrap_or(base)) {
        return Within::Unclear(NO_BASE);
    }
    let (name, base) = (relative(name), relative(base));
    match base.starts_with('.') {
        true => is_below(name, base).into(),
        false => name.eq_ignore_ascii_case(base).into(),
    }
}

/// A base has the domain and all names below it, or with a period before it only those below it.
fn domain(name: &str, base: &str) -> Within {
    let (name, base) = (relative(name), relative(base));
    let dotted = format!(".{}", base.trim_start_matches('.'));
    if base.is_empty() || name.eq_ignore_ascii_case(base) || is_below(name, &dotted) {
        return Within::Yes;
    }
    let some_names = name.strip_prefix('*').is_some_and(|rest| {
        is_below(base, rest) && !base[..base.len() - rest.len()].trim_matches('.').contains('.')
    });
    if some_names { Within::Unclear(WILDCARD) } else { Within::No }
}

/// Without the period at the end of an absolute name.
fn relative(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// Returns `true` if something stands before the domain, which begins with a period.
fn is_below(name: &str, dotted: &str) -> bool {
    let start = name.len().saturating_sub(dotted.len());
    start > 0 && name.get(start..).is_some_and(|end| end.eq_ignore_ascii_case(dotted))
}

/// The host of a URI (RFC 3986 §3.2.2), if it is a domain name.
fn host_of_uri(uri: &str) -> Option<&str> {
    let (_, rest) = uri.split_once(':')?;
    let authority = rest.strip_prefix("//")?.split(['/', '?', '#']).next()?;
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (host, port) = host.split_once(':').unwrap_or((host, ""));
    let is_plain =
        user.chars().all(|c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:%".contains(c))
            && port.chars().all(|c| c.is_ascii_digit());
    (is_plain && is_domain_name(host)).then_some(host)
}

/// Returns `true` if the text has only letters, digits, hyphens and underscores in its labels, and is no IPv4 address.
fn is_domain_name(text: &str) -> bool {
    let mut labels = relative(text).split('.');
    labels.clone().all(|label| {
        !label.is_empty()
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    }) && !labels.next_back().is_some_and(|label| label.chars().all(|c| c.is_ascii_digit()))
}

fn address(name: &[u8], base: &[u8]) -> Within {
    let (address, mask) = base.split_at(base.len() / 2);
    if address.len() != mask.len() || ![4, 16].contains(&mask.len()) {
        return Within::Unclear(NO_MASK);
    }
    if name.len() != address.len() {
        return Within::No;
    }
    name.iter().zip(address).zip(mask).all(|((n, a), mask)| n & mask == a & mask).into()
}

fn directory(name: &Name, base: &Name) -> Within {
    if base.is_empty() {
        return Within::Yes;
    }
    match [name, base].map(|name| DistinguishedName::from_der(&name.to_der().ok()?).ok()) {
        [Some(name), Some(base)] => {
            name.is_within(&base).map_or(Within::Unclear(OTHER_TEXT), Within::from)
        }
        _ => Within::Unclear("one of the names is too long to compare"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_uris_are_found_where_a_browser_finds_them() {
        for (uri, found) in [
            ("https://a.example", Some("a.example")),
            ("https://a.example:443/b@c.example", Some("a.example")),
            ("https://u:p@a.example?x@y", Some("a.example")),
            ("https://a.example#@b.example", Some("a.example")),
            ("ldap://a.example./cn=b", Some("a.example.")),
            ("mailto:a@b.example", None),
            ("//a.example", None),
            ("https://", None),
            ("https://192.0.2.1", None),
            ("https://[::1]", None),
            ("https://a.example:b", None),
            ("https://a.example\\@b.example", None),
            ("https://b.example\\a.example", None),
            ("https://a b.example", None),
            ("https://a..example", None),
        ] {
            assert_eq!(host_of_uri(uri), found, "{uri}");
        }
    }

    #[test]
    fn domains_have_the_names_below_them() {
        for name in ["a.example", "b.A.example", "c.b.a.example", "a.example.", "*.a.example"] {
            assert_eq!(domain(name, "a.example"), Within::Yes, "{name}");
            assert_eq!(domain(name, ""), Within::Yes, "{name}");
        }
        for name in ["ba.example", "example", "a.example.org", ""] {
            assert_eq!(domain(name, "a.example"), Within::No, "{name}");
        }
        assert_eq!(domain("b.a.example", ".a.example"), Within::Yes);
        assert_eq!(domain("a.example", ".a.example"), Within::No);
        assert_eq!(domain("*.example", "a.example"), Within::Unclear(WILDCARD));
        assert_eq!(domain("*.example", "b.a.example"), Within::No, "it stands for one label");
    }

    #[test]
    fn a_mailbox_in_quotes_may_have_an_at() {
        assert_eq!(mail("\"a@b\"@c.example", "c.example"), Within::Yes);
        assert_eq!(mail("a@b.example@c.example", "b.example"), Within::No);
        for wrong in ["a@", "@b.example", "a", "", "a@b..example", "a@b example"] {
            assert_eq!(mail(wrong, ".example"), Within::Unclear(NO_HOST), "{wrong}");
        }
    }

    #[test]
    fn the_empty_base_of_mail_addresses_has_all_of_them() {
        assert_eq!(mail("a@b.example", ""), Within::Yes);
        assert_eq!(mail("\"a b\"@b.example", ""), Within::Yes);
    }

    #[test]
    fn nothing_is_decided_by_a_base_that_is_no_domain() {
        let wrong = [
            ".",
            "..",
            "..example",
            ".b.example..",
            "b.example..",
            "*.example",
            "b example",
            "192.0.2.1",
            "b.example:443",
            "https://b.example",
            "https://b.example/",
        ];
        for base in wrong {
            assert_eq!(host("b.example", base), Within::Unclear(NO_BASE), "{base}");
            assert_eq!(mail("a@b.example", base), Within::Unclear(NO_BASE), "{base}");
            let mailbox = format!("a@{base}");
            assert_eq!(mail("a@b.example", &mailbox), Within::Unclear(NO_BASE), "{mailbox}");
        }
        assert_eq!(host("b.example", ""), Within::Unclear(NO_BASE));
        for base in ["@", "a@", "a@.example"] {
            assert_eq!(mail("a@b.example", base), Within::Unclear(NO_BASE), "{base}");
        }
    }

    #[test]
    fn a_base_may_end_with_the_period_of_an_absolute_name() {
        assert_eq!(host("b.example", "B.example."), Within::Yes);
        assert_eq!(host("b.example.", ".example"), Within::Yes);
        assert_eq!(host("b.example", ".example."), Within::Yes);
        assert_eq!(host("b.example", ".b.example."), Within::No);
        assert_eq!(host("b.example", "example"), Within::No);
    }

    #[test]
    fn mailboxes_are_compared_if_each_has_one_spelling() {
        assert_eq!(mail("a.b+c@d.example", "a.b+c@D.example"), Within::Yes);
        assert_eq!(mail("a@d.example", "A@d.example"), Within::No);
        assert_eq!(mail("\"a\"@d.example", "\"a\"@d.example"), Within::Yes);
        for (name, base) in [
            ("\"a\"@d.example", "a@d.example"),
            ("a@d.example", "\"a\"@d.example"),
            ("a@d.example", "mailto:a@d.example"),
            ("a@d.example", "@d.example"),
            ("a@d.example", "a@b@d.example"),
        ] {
            assert_eq!(mail(name, base), Within::Unclear(OTHER_MAILBOX), "{name} {base}");
        }
        assert_eq!(mail("\"a\"@e.example", "a@d.example"), Within::No);
    }

    #[test]
    fn masks_decide_about_addresses() {
        let base = [192, 0, 2, 0, 255, 255, 255, 0];
        assert_eq!(address(&[192, 0, 2, 9], &base), Within::Yes);
        assert_eq!(address(&[192, 0, 3, 9], &base), Within::No);
        assert_eq!(address(&[0; 16], &base), Within::No);
        assert_eq!(address(&[192, 0, 2, 9], &base[..7]), Within::Unclear(NO_MASK));
        assert_eq!(address(&[192, 0, 2, 9], &[]), Within::Unclear(NO_MASK));
    }
}
