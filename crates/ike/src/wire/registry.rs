//! IANA's IKEv2 numbers as newtypes that keep the unknown ones.

use policy::{AhIntegrity, EspEncryption, Group, Prf};

/// Numbers with their names; `or` finds the names of further numbers.
macro_rules! registry {
    (
        $(#[$doc:meta])*
        $name:ident($int:ty) { $($(#[$vdoc:meta])* $variant:ident = $value:literal),* $(,)? }
        $(or $further:expr)?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $int);

        #[allow(missing_docs, reason = "the names are the registry's own")]
        impl $name {
            $($(#[$vdoc])* pub const $variant: Self = Self($value);)*
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let number = self.0;
                let name: Option<&str> = match number {
                    $($value => Some(stringify!($variant)),)*
                    _ => None,
                };
                $(let name = name.or_else(|| ($further)(number));)?
                match name {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{}({number})", stringify!($name)),
                }
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }

        #[cfg(feature = "serde")]
        impl serde::Serialize for $name {
            /// As it is displayed: the registry's name, or the number of one that has none.
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
}

registry! {
    /// Exchange types.
    ExchangeType(u8) {
        IKE_SA_INIT = 34, IKE_AUTH = 35, CREATE_CHILD_SA = 36, INFORMATIONAL = 37,
        IKE_SESSION_RESUME = 38, IKE_INTERMEDIATE = 43, IKE_FOLLOWUP_KE = 44,
    }
}

registry! {
    /// Payload types.
    PayloadType(u8) {
        NONE = 0, SA = 33, KE = 34, IDI = 35, IDR = 36, CERT = 37, CERTREQ = 38, AUTH = 39, NONCE = 40, NOTIFY = 41,
        DELETE = 42, VENDOR_ID = 43, TSI = 44, TSR = 45, SK = 46, CP = 47, EAP = 48, SKF = 53,
    }
}

registry! {
    /// Security protocol identifiers.
    ProtocolId(u8) { NONE = 0, IKE = 1, AH = 2, ESP = 3 }
}

registry! {
    /// Transform types.
    TransformType(u8) {
        ENCR = 1, PRF = 2, INTEG = 3, KE = 4, ESN = 5, ADDKE1 = 6, ADDKE2 = 7, ADDKE3 = 8, ADDKE4 = 9, ADDKE5 = 10,
        ADDKE6 = 11, ADDKE7 = 12,
    }
}

impl TransformType {
    /// The additional key exchanges, in the order in which they take place (RFC 9370 §2.2.1).
    pub const ADDITIONAL: [Self; 7] = [
        Self::ADDKE1,
        Self::ADDKE2,
        Self::ADDKE3,
        Self::ADDKE4,
        Self::ADDKE5,
        Self::ADDKE6,
        Self::ADDKE7,
    ];
}

registry! {
    /// Identification types.
    IdType(u8) {
        IPV4_ADDR = 1, FQDN = 2, RFC822_ADDR = 3, IPV6_ADDR = 5, DER_ASN1_DN = 9, DER_ASN1_GN = 10, KEY_ID = 11,
    }
}

registry! {
    /// Authentication methods.
    AuthMethod(u8) {
        RSA_DIGITAL_SIGNATURE = 1, SHARED_KEY_MIC = 2, DSS_DIGITAL_SIGNATURE = 3, ECDSA_SHA256_P256 = 9,
        ECDSA_SHA384_P384 = 10, ECDSA_SHA512_P521 = 11, DIGITAL_SIGNATURE = 14,
    }
}

registry! {
    /// Certificate encodings.
    CertEncoding(u8) {
        X509_SIGNATURE = 4, CRL = 7, HASH_AND_URL_OF_CERTIFICATE = 12, HASH_AND_URL_OF_BUNDLE = 13, OCSP_CONTENT = 14,
    }
}

registry! {
    /// Hash algorithms of signatures (RFC 7427 §4, RFC 8420 §2).
    HashId(u16) { SHA1 = 1, SHA2_256 = 2, SHA2_384 = 3, SHA2_512 = 4, IDENTITY = 5 }
}

registry! {
    /// Notify message types; below 16384 they are errors.
    NotifyType(u16) {
        UNSUPPORTED_CRITICAL_PAYLOAD = 1, INVALID_IKE_SPI = 4, INVALID_MAJOR_VERSION = 5, INVALID_SYNTAX = 7,
        INVALID_MESSAGE_ID = 9, INVALID_SPI = 11, NO_PROPOSAL_CHOSEN = 14, INVALID_KE_PAYLOAD = 17,
        AUTHENTICATION_FAILED = 24, SINGLE_PAIR_REQUIRED = 34, NO_ADDITIONAL_SAS = 35, INTERNAL_ADDRESS_FAILURE = 36,
        FAILED_CP_REQUIRED = 37, TS_UNACCEPTABLE = 38, INVALID_SELECTORS = 39, UNACCEPTABLE_ADDRESSES = 40,
        UNEXPECTED_NAT_DETECTED = 41, TEMPORARY_FAILURE = 43, CHILD_SA_NOT_FOUND = 44,
        STATE_NOT_FOUND = 47,
        INITIAL_CONTACT = 16384, SET_WINDOW_SIZE = 16385, ADDITIONAL_TS_POSSIBLE = 16386, IPCOMP_SUPPORTED = 16387,
        NAT_DETECTION_SOURCE_IP = 16388, NAT_DETECTION_DESTINATION_IP = 16389, COOKIE = 16390,
        USE_TRANSPORT_MODE = 16391, HTTP_CERT_LOOKUP_SUPPORTED = 16392, REKEY_SA = 16393,
        ESP_TFC_PADDING_NOT_SUPPORTED = 16394, NON_FIRST_FRAGMENTS_ALSO = 16395, MOBIKE_SUPPORTED = 16396,
        ADDITIONAL_IP4_ADDRESS = 16397, ADDITIONAL_IP6_ADDRESS = 16398, NO_ADDITIONAL_ADDRESSES = 16399,
        UPDATE_SA_ADDRESSES = 16400, COOKIE2 = 16401, NO_NATS_ALLOWED = 16402, AUTH_LIFETIME = 16403,
        REDIRECT_SUPPORTED = 16406, REDIRECT = 16407, TICKET_LT_OPAQUE = 16409, TICKET_REQUEST = 16410,
        TICKET_ACK = 16411, TICKET_NACK = 16412, TICKET_OPAQUE = 16413,
        EAP_ONLY_AUTHENTICATION = 16417, CHILDLESS_IKEV2_SUPPORTED = 16418, IKEV2_FRAGMENTATION_SUPPORTED = 16430,
        SIGNATURE_HASH_ALGORITHMS = 16431, USE_PPK = 16435, PPK_IDENTITY = 16436, NO_PPK_AUTH = 16437,
        INTERMEDIATE_EXCHANGE_SUPPORTED = 16438, ADDITIONAL_KEY_EXCHANGE = 16441, USE_PPK_INT = 16445,
        PPK_IDENTITY_KEY = 16446,
    }
}

impl NotifyType {
    /// Returns `true` if it reports an error (RFC 7296 §3.10.1).
    pub fn is_error(self) -> bool {
        self.0 < 16384
    }
}

registry! {
    /// Traffic selector types.
    TsType(u8) { IPV4_ADDR_RANGE = 7, IPV6_ADDR_RANGE = 8 }
}

registry! {
    /// Encryption transforms. Those that a policy can name are in the registry of algorithms.
    EncryptionId(u16) { ENCR_AES_CTR = 13, ENCR_AES_GCM_8 = 18, ENCR_AES_GCM_12 = 19 }
    or |number| EspEncryption::ALL.map(EspEncryption::row).iter().find(|row| row.number == number).map(|row| row.iana)
}

registry! {
    /// PRF transforms. Those that a policy can name are in the registry of algorithms.
    PrfId(u16) {}
    or |number| Prf::ALL.map(Prf::row).iter().find(|row| row.number == number).map(|row| row.iana)
}

registry! {
    /// Integrity transforms. Those that a policy can name are in the registry of algorithms.
    IntegrityId(u16) { NONE = 0 }
    or |number| AhIntegrity::all().map(AhIntegrity::row).find(|row| row.number == number).map(|row| row.iana)
}

registry! {
    /// Key exchange methods. Those that a policy can name are in the registry of algorithms.
    GroupId(u16) { NONE = 0, MODP_768 = 1, CURVE448 = 32 }
    or |number| Group::of_number(number).map(|group| group.row().iana)
}

impl From<Group> for GroupId {
    fn from(group: Group) -> Self {
        Self(group.row().number)
    }
}
