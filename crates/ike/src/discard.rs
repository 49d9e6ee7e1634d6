//! Why datagrams are ignored. One value per reason, each with its counter.

esp::discards! {
    /// Why a datagram was ignored.
    pub enum Discard {
        /// No whole IKE header, or one that contradicts the datagram's length.
        MalformedHeader = "malformed_header",
        /// A message for an IKE SA that is not here: gone, of a former run, or never was.
        UnknownSpi = "unknown_spi",
        /// Of another major version than IKEv2.
        UnsupportedVersion = "unsupported_version",
        /// More than the gateway keeps up with: so many messages wait already that there is no room for another.
        TooManyWaiting = "too_many_waiting",
        /// A new peer while the gateway is stopping.
        Stopping = "stopping",
        /// A new peer over an address family for which IPsec is switched off.
        FamilyOff = "family_off",
        /// An IKE_SA_INIT with an SPI of our own: somebody sends our messages back.
        Reflected = "reflected",
        /// An IKE_SA_INIT longer than any honest one.
        TooLong = "too_long",
        /// Payloads that cannot be read, or that lack what the message needs.
        Malformed = "malformed",
        /// An IKE_SA_INIT whose nonce is shorter than half the key of the chosen PRF.
        ShortNonce = "short_nonce",
        /// An IKE_SA_INIT while too many others have not been followed by IKE_AUTH: an attack, or all peers at once.
        TooManyHalfOpen = "too_many_half_open",
        /// An IKE_SA_INIT that must come again with a cookie, to show that its source address is real.
        WithoutCookie = "without_cookie",
        /// An IKE_SA_INIT between addresses that no tunnel of the policy has.
        NoMatchingTunnel = "no_matching_tunnel",
        /// A ticket that no key here opens: of another gateway, of a former run, or forged.
        TicketUnknown = "ticket_unknown",
        /// A ticket that has expired.
        TicketExpired = "ticket_expired",
        /// A ticket that was used, or whose IKE SA was deleted or rekeyed.
        TicketSpent = "ticket_spent",
        /// A ticket from which the policy, as it is now, does not let its peer resume.
        TicketNotAllowed = "ticket_not_allowed",
        /// More from a peer whose IKE_AUTH has been refused.
        AlreadyRefused = "already_refused",
        /// A request come again whose proof is being checked, or whose traffic is about to be blocked in the clear.
        AnswerPending = "answer_pending",
        /// A certificate in an encoding that is of no use here.
        CertificateEncoding = "certificate_encoding",
        /// A message of an exchange that is not expected here.
        WrongExchange = "wrong_exchange",
        /// A public value that is none of its group (RFC 6989).
        InvalidPublicValue = "invalid_public_value",
        /// An answer to nothing that was asked, or to what has been answered already.
        UnexpectedResponse = "unexpected_response",
        /// A refusal that anybody could have sent: believed only if nothing better comes.
        UnauthenticatedRefusal = "unauthenticated_refusal",
        /// A message that claims to come from the wrong side of its IKE SA.
        WrongInitiatorFlag = "wrong_initiator_flag",
        /// A request whose number is not due: repeated from long ago, or from the future.
        MessageId = "message_id",
        /// A request on an IKE SA that is not established yet.
        TooEarly = "too_early",
        /// A fragment that has come already.
        RepeatedFragment = "repeated_fragment",
        /// A fragment from a peer with which fragments were not agreed on.
        UnexpectedFragment = "unexpected_fragment",
        /// A fragment of a message that its sender has since cut smaller.
        OutdatedFragment = "outdated_fragment",
        /// The integrity check failed: damaged or forged.
        NotAuthentic = "not_authentic",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_reason_has_a_name_of_its_own_and_a_sentence_on_one_line() {
        let names: BTreeSet<_> = Discard::ALL.iter().map(|d| d.name()).collect();
        assert_eq!(names.len(), Discard::ALL.len());
        for discard in Discard::ALL {
            let text = discard.explanation();
            assert!(text.ends_with('.') && (20..=120).contains(&text.len()), "{text:?}");
            assert!(!text.contains('\n') && !text.contains("  "), "{text:?}");
        }
    }
}
