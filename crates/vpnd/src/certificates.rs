//! Certificates as the operator meets them: read from where `vpnd.toml` says, with everything worth a remark.

use crate::config::{Certificates as Settings, WithoutCrl};
use crate::remark::Told;
use control::protocol::CertificateInfo;
use control::protocol::certificate::{NOTICE, notice_of_list};
use ike::proof::trust::{Listed, Role, Trust};
use policy::{Credential, Policy, Signature};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use vpn::revocation::Lists;

/// The certificates, keys and lists that were read.
#[derive(Debug)]
pub struct Certificates {
    /// The usable ones.
    pub trust: Arc<Trust>,
    /// Files that cannot be used at all.
    pub errors: Vec<String>,
    /// Everything else worth a remark.
    pub warnings: Vec<String>,
}

impl Certificates {
    /// All that is worth a remark, also of what the policy wants.
    pub(crate) fn remarks(&self, policy: &Policy) -> Vec<Told> {
        each_once(self.warnings.clone(), missing(policy, &self.trust))
    }
}

/// Knows where certificates are, and which are in force.
#[derive(Debug, Default)]
pub struct Keeper {
    settings: Settings,
    lists: Arc<Lists>,
    in_force: Mutex<(Arc<Policy>, Arc<Trust>)>,
}

impl Keeper {
    /// With none in force.
    pub fn new(settings: Settings) -> Self {
        let lists = Arc::new(Lists::new(settings.revocation()));
        Self { settings, lists, in_force: Mutex::default() }
    }

    /// Fetched revocation lists.
    pub fn lists(&self) -> &Arc<Lists> {
        &self.lists
    }

    /// Reads all files; nothing changes.
    pub fn read(&self) -> Certificates {
        read(&self.settings)
    }

    /// Notes what is in force now.
    pub fn keep(&self, policy: Arc<Policy>, trust: Arc<Trust>) {
        *self.in_force.lock().unwrap_or_else(PoisonError::into_inner) = (policy, trust);
    }

    /// Lists the certificates and revocation lists in force that have expired, are not valid yet, or expire soon.
    pub fn expiring(&self) -> Vec<String> {
        let (_, trust) = self.in_force();
        trust.listing().iter().filter_map(|listed| validity(listed, now())).collect()
    }

    /// The certificates in force, with what has become worth a remark since they were read.
    pub fn current(&self) -> Certificates {
        let (_, trust) = self.in_force();
        Certificates { trust, errors: Vec::new(), warnings: self.expiring() }
    }

    fn in_force(&self) -> (Arc<Policy>, Arc<Trust>) {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Describes the certificates and revocation lists in force, for `vpnctl certs`.
    pub fn describe(&self) -> Vec<CertificateInfo> {
        let (policy, trust) = self.in_force();
        let mut all = describe(&trust, &policy);
        let fetched = self.lists.listing().into_iter();
        all.extend(fetched.map(|(url, list)| described(&Listed::crl(&url, &list), now())));
        all
    }
}

/// Reads all files.
pub fn read(settings: &Settings) -> Certificates {
    let loaded = vpn::certificates::load(&settings.sources());
    let mut material = loaded.material;
    material.lenient_revocation = settings.without_crl == WithoutCrl::Accept;
    material.ocsp_max_age = settings.ocsp_max_age.0;
    let (trust, defects) = Trust::new(material);
    let mut warnings = loaded.warnings;
    warnings.extend(defects.iter().map(ToString::to_string));
    warnings.extend(trust.listing().iter().filter_map(|listed| validity(listed, now())));
    Certificates {
        trust: Arc::new(trust),
        errors: loaded.errors.iter().map(ToString::to_string).collect(),
        warnings,
    }
}

/// The remarks about files, and those about tunnels. One about tunnels tells the remark about the file, too.
fn each_once(files: Vec<String>, tunnels: Vec<Told>) -> Vec<Told> {
    let mut all: Vec<Told> = Vec::new();
    for remark in files {
        let is_told = tunnels.iter().any(|tunnel| tunnel.text.ends_with(&remark));
        if !is_told && !all.iter().any(|told| told.text == remark) {
            all.push(Told::of_daemon(remark));
        }
    }
    all.extend(tunnels);
    all
}

/// The reasons why tunnels cannot authenticate with these certificates, one remark each.
fn missing(policy: &Policy, trust: &Trust) -> Vec<Told> {
    let mut missing = Vec::new();
    let mut late: Vec<(String, Vec<&str>)> = Vec::new();
    for tunnel in &policy.tunnels {
        let name = &tunnel.name;
        missing.extend(without_ppk(tunnel, trust).map(|text| told(name, &text)));
        let Credential::Signature(Signature { keys, .. }) = &tunnel.credential else { continue };
        if let Err(why) = trust.check_own(&tunnel.local.identity, keys) {
            missing.push(told(name, &why));
        }
        if let Some(problem) = out_of_time(tunnel, keys, trust) {
            match late.iter_mut().find(|(known, _)| *known == problem) {
                Some((_, tunnels)) => tunnels.push(name),
                None => late.push((problem, vec![name])),
            }
        }
        if !trust.listing().iter().any(|listed| listed.role == Role::Authority) {
            let text = "no authority is trusted, so that no certificate of the peer can be valid; put the certificate of \
                        its authority into /etc/vpnd/ca, or where [certificates] of vpnd.toml says";
            missing.push(told(name, text));
        }
    }
    missing.extend(late.into_iter().map(|(problem, tunnels)| {
        let word = if tunnels.len() == 1 { "tunnel" } else { "tunnels" };
        let text = format!("{word} {} cannot come up: {problem}", tunnels.join(", "));
        Told::of_tunnels(&tunnels, text)
    }));
    missing
}

fn told(name: &str, text: &str) -> Told {
    Told::of_tunnels(&[name], format!("tunnel {name}: {text}"))
}

/// A text, if this side has none of the PPKs of a tunnel.
fn without_ppk(tunnel: &policy::IkeTunnel, trust: &Trust) -> Option<String> {
    let ppk = tunnel.ppk.as_ref()?;
    if ppk.ids.iter().any(|id| trust.ppk(id).is_some()) {
        return None;
    }
    let effect = match ppk.required {
        true => "the tunnel cannot come up",
        false => "the tunnel comes up without one",
    };
    Some(format!(
        "this side has no PPK by the names in its policy ({}): {effect}; put one into /etc/vpnd/ppk/{}, or where \
         [certificates] of vpnd.toml says, then: vpnctl reload",
        ppk.ids.join(", "),
        ppk.ids[0]
    ))
}

/// A text, if none of the certificates with which this side proves itself for a tunnel is valid now.
fn out_of_time(
    tunnel: &policy::IkeTunnel,
    keys: &[policy::KeyKind],
    trust: &Trust,
) -> Option<String> {
    let now = now();
    let items = trust.own_items(&tunnel.local.identity, keys);
    let own = trust.listing().iter().filter(|l| l.role == Role::Own && items.contains(&&*l.item));
    let (valid, bad): (Vec<_>, Vec<_>) =
        own.partition(|l| now >= l.not_before && l.not_after.is_none_or(|until| now < until));
    bad.first().filter(|_| valid.is_empty()).and_then(|l| validity(l, now))
}

/// Returns `true` if a tunnel of the policy authenticates with certificates.
pub fn are_used(policy: &Policy) -> bool {
    policy.tunnels.iter().any(|tunnel| matches!(tunnel.credential, Credential::Signature(_)))
}

fn describe(trust: &Trust, policy: &Policy) -> Vec<CertificateInfo> {
    let now = now();
    let listing = trust.listing().iter().map(|listed| CertificateInfo {
        tunnels: match listed.role {
            Role::Own => tunnels_with(&listed.item, trust, policy),
            _ => Vec::new(),
        },
        ..described(listed, now)
    });
    listing.collect()
}

/// The tunnels that this side proves its identity in with one of its own certificates.
fn tunnels_with(item: &str, trust: &Trust, policy: &Policy) -> Vec<String> {
    let tunnels = policy.tunnels.iter().filter(|tunnel| match &tunnel.credential {
        Credential::Signature(Signature { keys, .. }) => {
            trust.own_items(&tunnel.local.identity, keys).contains(&item)
        }
        Credential::PresharedKey(_) => false,
    });
    tunnels.map(|tunnel| tunnel.name.clone()).collect()
}

fn described(listed: &Listed, now: Duration) -> CertificateInfo {
    CertificateInfo {
        role: match listed.role {
            Role::Authority => "authority",
            Role::Intermediate => "intermediate",
            Role::Own => "own",
            Role::RevocationList => "revocation_list",
            Role::OcspResponse => "ocsp_response",
        }
        .into(),
        source: listed.item.clone(),
        subject: listed.subject.clone(),
        issuer: listed.issuer.clone(),
        names: listed.names.clone(),
        serial: listed.serial.clone(),
        key: listed.key.map(|(kind, bits)| match kind {
            policy::KeyKind::Rsa => format!("RSA {bits}"),
            kind => kind.to_string(),
        }),
        private_key: listed.private_key.clone(),
        token: listed.token.clone(),
        not_before: date(listed.not_before),
        not_after: listed.not_after.map(date),
        days_left: listed.not_after.map(|until| days(now, until)),
        expires_soon: expires_soon(listed, now),
        tunnels: Vec::new(),
    }
}

/// A text, if an item has expired, is not valid yet, or expires soon.
fn validity(listed: &Listed, now: Duration) -> Option<String> {
    let (item, from) = (&listed.item, listed.not_before);
    let (what, cure) = match listed.role {
        Role::RevocationList => (
            "revocation list",
            "get its next issue; an authority of vpnctl pki makes it: vpnctl pki crl, then copy it to every gateway",
        ),
        Role::OcspResponse => ("OCSP response", "get its next issue"),
        _ => ("certificate", "have it renewed"),
    };
    if now < from {
        let cure = "is the clock of this machine right?";
        return Some(format!("{item}: the {what} is not valid before {}; {cure}", date(from)));
    }
    let until = listed.not_after?;
    if until <= now {
        return Some(format!("{item}: the {what} has expired on {}; {cure}", date(until)));
    }
    expires_soon(listed, now).then(|| {
        let left = days(now, until);
        let days = if left == 1 { "day" } else { "days" };
        format!("{item}: the {what} expires in {left} {days}, on {}; {cure}", date(until))
    })
}

/// Returns `true` if an item has not expired, but will before long.
fn expires_soon(listed: &Listed, now: Duration) -> bool {
    let Some(until) = listed.not_after else { return false };
    let notice = match listed.role {
        Role::RevocationList | Role::OcspResponse => {
            notice_of_list(until.saturating_sub(listed.not_before))
        }
        _ => NOTICE,
    };
    now < until && until - now < notice
}

/// Whole days from one moment to another; negative where that has passed.
fn days(now: Duration, until: Duration) -> i64 {
    let [now, until] = [now, until].map(|time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
    (until - now).div_euclid(24 * 3600)
}

/// A moment as RFC 3339 writes it, to the second.
fn date(unix: Duration) -> String {
    // The last second of the year 9999 (RFC 5280 §4.1.2.5).
    const LAST: Duration = Duration::from_secs(253_402_300_799);
    humantime::format_rfc3339_seconds(UNIX_EPOCH + unix.min(LAST)).to_string()
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600;

    fn listed(role: Role, from: u64, until: u64) -> Listed {
        Listed {
            role,
            item: "left.pem".into(),
            subject: "CN=left".into(),
            issuer: "CN=root".into(),
            names: vec![],
            serial: "01".into(),
            key: Some((policy::KeyKind::Rsa, 3072)),
            private_key: None,
            token: None,
            not_before: Duration::from_secs(from),
            not_after: Some(Duration::from_secs(until)),
        }
    }

    #[test]
    fn days_are_whole_and_run_out_on_the_second() {
        let days = |now, until| days(Duration::from_secs(now), Duration::from_secs(until));
        assert_eq!([days(0, DAY), days(1, DAY), days(DAY, DAY), days(DAY + 1, DAY)], [1, 0, 0, -1]);
    }

    #[test]
    fn an_invalid_or_soon_expiring_certificate_is_remarked_on() {
        let at = |role, now| validity(&listed(role, DAY, 100 * DAY), Duration::from_secs(now));
        let own = |now| at(Role::Own, now).unwrap_or_default();
        assert!(
            own(0).contains("left.pem: the certificate is not valid before 1970-01-02T00:00:00Z")
        );
        assert!(own(100 * DAY).contains("has expired on 1970-04-11T00:00:00Z; have it renewed"));
        assert!(own(99 * DAY).contains("expires in 1 day, on 1970-04-11"));
        assert_eq!(at(Role::Own, 70 * DAY), None);
        let list = at(Role::RevocationList, 101 * DAY).expect("out of date");
        assert!(list.contains("the revocation list has expired"), "{list}");
        assert!(list.contains("vpnctl pki crl"), "{list}");
    }

    #[test]
    fn a_list_is_remarked_on_in_the_last_third_of_its_life_at_most_a_month() {
        let told = |life, left| {
            let list = listed(Role::RevocationList, DAY, DAY + life * DAY);
            let now = Duration::from_secs(DAY + (life - left) * DAY);
            assert_eq!(described(&list, now).expires_soon, validity(&list, now).is_some());
            validity(&list, now)
        };
        for (life, left) in [(365, 31), (365, 30), (7, 4), (7, 3)] {
            assert_eq!(told(life, left), None, "{left} of {life} days");
        }
        let year = told(365, 29).expect("a month before the end");
        assert!(year.contains("the revocation list expires in 29 days"), "{year}");
        assert!(year.ends_with("vpnctl pki crl, then copy it to every gateway"), "{year}");
        assert!(told(7, 2).is_some_and(|week| week.contains("expires in 2 days")));
    }

    #[test]
    fn a_file_is_named_once() {
        let text = |text: &str| text.to_owned();
        let expired = text("left.pem: the certificate has expired");
        let other = text("old.pem: the certificate has expired");
        let tunnels =
            Told::of_tunnels(&["a", "b"], format!("tunnels a, b cannot come up: {expired}"));
        let all = each_once(vec![expired, other.clone(), other.clone()], vec![tunnels.clone()]);
        assert_eq!(all, [Told::of_daemon(other), tunnels]);
    }

    #[test]
    fn a_list_describes_itself_without_a_key() {
        let described = described(&listed(Role::Own, 0, DAY), Duration::ZERO);
        assert_eq!((described.key.as_deref(), described.days_left), (Some("RSA 3072"), Some(1)));
        let list = Listed { key: None, not_after: None, ..listed(Role::RevocationList, 0, 0) };
        let described = super::described(&list, Duration::ZERO);
        assert_eq!((described.key, described.not_after, described.days_left), (None, None, None));
    }
}
