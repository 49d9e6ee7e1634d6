//! The revocation of the certificates of a path, by revocation lists (RFC 5280 §6.3) and OCSP responses (RFC 6960).

use super::crl::Crl;
use super::ocsp::{Ocsp, Status};
use super::path::Link;
use std::time::Duration;

/// Everything that is here about revocation.
pub(super) struct Statements<'a> {
    /// OCSP responses that the peer has sent along.
    pub ocsp: Vec<Ocsp>,
    /// Revocation lists, the newest first.
    pub crls: Vec<&'a Crl>,
    /// The age that an OCSP response may have; `None`: the response itself decides.
    pub ocsp_max_age: Option<Duration>,
    /// Since 1970.
    pub unix_time: Duration,
}

impl Statements<'_> {
    /// Returns `true` if a statement in force says that a certificate is not revoked, and `false` if none says
    /// anything.
    ///
    /// # Errors
    /// If one says that the certificate is revoked: no other statement outweighs that. The text is for the operator.
    pub fn vouch_for(&self, link: Link<'_>) -> Result<bool, String> {
        let Link { certificate, issuer } = link;
        let by_ocsp = self
            .ocsp
            .iter()
            .filter_map(|answer| {
                answer.status(certificate, issuer, self.unix_time, self.ocsp_max_age).ok()
            })
            .max();
        if by_ocsp == Some(Status::Revoked) {
            return Err(format!(
                "the certificate {certificate} is revoked, says an OCSP responder of its issuer; its owner needs a \
                 new one, with a new key"
            ));
        }
        let lists: Vec<&Crl> = self.crls.iter().copied().filter(|crl| counts(crl, link)).collect();
        let current = lists.iter().find(|crl| crl.is_current(self.unix_time));
        // A list that is outdated still tells what was revoked until then.
        if lists.first().into_iter().chain(current).any(|crl| crl.revokes(certificate)) {
            return Err(format!(
                "the certificate {certificate} is revoked by its issuer; its owner needs a new one, with a new key"
            ));
        }
        Ok(current.is_some() || by_ocsp == Some(Status::Good))
    }

    /// Until when, since 1970, the statements in force vouch for a certificate that is not revoked; the present, if none
    /// does.
    pub fn vouched_until(&self, link: Link<'_>) -> Duration {
        let Link { certificate, issuer } = link;
        let (now, oldest) = (self.unix_time, self.ocsp_max_age);
        let by_ocsp =
            self.ocsp.iter().filter_map(|o| o.vouches_until(certificate, issuer, now, oldest));
        let lists = self.crls.iter().filter(|crl| crl.is_current(now) && counts(crl, link));
        let by_list = lists.map(|crl| crl.next_update().unwrap_or(Duration::MAX));
        by_ocsp.chain(by_list).max().unwrap_or(now)
    }

    /// The reasons for which the lists that are here say nothing about a certificate.
    pub fn shortcomings(&self, link: Link<'_>) -> impl Iterator<Item = String> {
        let issuer = link.certificate.issuer();
        let named = self.crls.iter().filter(move |crl| crl.issuer() == issuer);
        named.map(move |crl| match (crl.is_about(link.certificate), counts(crl, link)) {
            (false, _) => format!("the list of {issuer} is about other certificates"),
            (true, false) => format!(
                "the list of {issuer} is not signed by the authority that it names, or that one may not sign lists"
            ),
            (true, true) => format!("that of {issuer} is outdated"),
        })
    }
}

/// Returns `true` if a list is about a certificate, and the certificate's issuer has signed it and may do so
/// (RFC 5280 §6.3.3 (b), (f), (g)). The name of the issuer is not enough: another authority may have it too.
fn counts(crl: &Crl, link: Link<'_>) -> bool {
    crl.is_about(link.certificate)
        && link.issuer.may_sign_crls()
        && crl.is_signed_by(&link.issuer.key().info)
}
