//! Identities, and the endpoints of phase 1 that they name.

use super::context::Context;
use crate::validate::{Problem, rules};
use crate::wording::quoted;
use crate::xml::element::{Attribute, Element};
use crate::xml::schema::{ADDRESS, is_group_reference};
use crate::{DistinguishedName, Doubt, Endpoint, Identity};
use std::net::IpAddr;

impl Context<'_> {
    /// The identity in one element, with or without the prefix `PK_`.
    pub fn identity(&mut self, element: &Element<'_>) -> Option<Identity> {
        let kind = element.name.strip_prefix("PK_").unwrap_or(element.name);
        if kind.ends_with("_Range") || kind.ends_with("_Subnet") {
            let message = format!("{kind} cannot say who a side is: it names many");
            let help = "use IPV4_Address, IPV6_Address, FQDN, User_FQDN, ASN1_DN or Key_ID; for many peers that start, \
                        name an IKEGroup";
            self.report.error(element.span(), message, help);
            return None;
        }
        let attribute = element.attribute("Value")?;
        match kind {
            "IPV4_Address" | "IPV6_Address" => {
                let address = self.address(element, "Value", kind == "IPV4_Address")?;
                if let Err(problem) = rules::host(address) {
                    let message = problem.to_string();
                    let help = "for a peer whose address is not known, use FQDN, User_FQDN or Key_ID and the \
                                IKE_Role \"Responder\"";
                    self.report.error(attribute.span(element), message, help);
                    return None;
                }
                Some(address.into())
            }
            "FQDN" => {
                let value = self.trimmed(element, attribute);
                self.is_valid(element, attribute, Identity::Fqdn(value.to_owned()))
            }
            "User_FQDN" => {
                let value = self.trimmed(element, attribute);
                self.is_valid(element, attribute, Identity::UserFqdn(value.to_owned()))
            }
            "ASN1_DN" => {
                let value = self.trimmed(element, attribute);
                match value.parse::<DistinguishedName>() {
                    Ok(name) => {
                        self.warn_reversed(element, attribute, value, &name);
                        Some(Identity::Dn(name))
                    }
                    Err(error) => {
                        let help = "write it like /C=NL/O=Example/CN=gate.example.net, or \
                                    CN=gate.example.net,O=Example,C=NL; openssl x509 -noout -subject -nameopt compat \
                                    prints the one of a certificate";
                        self.report.error(attribute.span(element), error.to_string(), help);
                        None
                    }
                }
            }
            _ => {
                // RFC 7296 §3.5: a key ID is opaque, so that blanks around it are part of it.
                let octets = attribute.value.as_bytes().to_vec();
                self.is_valid(element, attribute, Identity::KeyId(octets))
            }
        }
    }

    /// Most programs print a name with commas in the order of its encoding, RFC 4514 reads it the other way round.
    fn warn_reversed(
        &mut self,
        element: &Element<'_>,
        attribute: &Attribute<'_>,
        value: &str,
        name: &DistinguishedName,
    ) {
        if !value.starts_with('/')
            && ["C=", "DC=", "O="].into_iter().any(|kind| starts_with_type(value, kind))
            && value.rsplit(',').next().is_some_and(|last| starts_with_type(last.trim(), "CN="))
        {
            let message =
                format!("{} is read as RFC 4514 has it: {name} has CN at the top", quoted(value));
            let help =
                "write the most specific part first, CN=…,O=…,C=…, or with slashes, /C=…/O=…/CN=…";
            self.report.warning(attribute.span(element), message, help);
        }
    }

    /// The identity, unless it breaks a rule, which is reported.
    fn is_valid(
        &mut self,
        element: &Element<'_>,
        attribute: &Attribute<'_>,
        identity: Identity,
    ) -> Option<Identity> {
        let Err(problem) = rules::identity(&identity) else {
            // A key is for a tunnel's identity, which has the same remark.
            if !element.name.starts_with("PK_") {
                self.warn_doubtful(element, attribute, &identity);
            }
            return Some(identity);
        };
        let (message, help) = match &problem {
            Problem::KeyIdLength(_) => ("Key_ID must have 1 to 255 octets".to_owned(), ""),
            other => (other.to_string(), other.help()),
        };
        self.report.error(attribute.span(element), message, help);
        None
    }

    /// A name that a peer can have, but that its writer may not mean.
    fn warn_doubtful(
        &mut self,
        element: &Element<'_>,
        attribute: &Attribute<'_>,
        identity: &Identity,
    ) {
        let Some(doubt) = identity.doubt() else { return };
        let name = quoted(&attribute.value);
        let (message, help) = match doubt {
            Doubt::Address => (
                format!("FQDN {name} is an address"),
                "it matches a peer that sends this text as ID_FQDN; for a peer that sends its address, use \
                 IPV4_Address or IPV6_Address",
            ),
            Doubt::Wildcard => (
                format!("FQDN {name} has a wildcard, and identities are compared as text"),
                "name each peer, in an IKEGroup if they are many",
            ),
            Doubt::NotADomain => (
                format!("FQDN {name} is not a domain name"),
                "it matches a peer that sends this text as ID_FQDN; for a peer that sends it as ID_KEY_ID, use Key_ID",
            ),
            Doubt::NotAUser => (
                format!("User_FQDN {name} is not user@domain"),
                "it matches a peer that sends this text as ID_RFC822_ADDR; for one that sends it as ID_FQDN or \
                 ID_KEY_ID, use FQDN or Key_ID",
            ),
        };
        self.report.warning(attribute.span(element), message, help);
    }

    /// One side of a phase 1 tunnel: an address, or a name with the optional address inside it.
    pub fn endpoint(&mut self, side: &Element<'_>) -> Option<Endpoint> {
        let element = self.only(side, None)?;
        if is_group_reference(element.name) {
            let message = "a group can be the remote identity alone";
            let help =
                "this side is one: name it by its address, FQDN, User_FQDN, ASN1_DN or Key_ID";
            self.report.error(element.span(), message, help);
            return None;
        }
        self.party(element)
    }

    /// One party by its identity.
    pub fn party(&mut self, element: &Element<'_>) -> Option<Endpoint> {
        let identity = self.identity(element);
        let address = match identity.as_ref().and_then(Identity::address) {
            Some(_) if element.attribute(ADDRESS).is_some() => self.elsewhere(element)?,
            Some(address) => Some(self.place(element, address)?),
            None if element.children.is_empty() => None,
            None => {
                let inner = self.only(element, None)?;
                self.names_no_side(inner)?;
                match self.identity(inner)?.address() {
                    Some(address) => Some(self.place(inner, address)?),
                    None => None,
                }
            }
        };
        Some(Endpoint { address, identity: identity? })
    }

    /// The address of an element, if a side can be there.
    fn place(&mut self, element: &Element<'_>, address: IpAddr) -> Option<IpAddr> {
        let Err(problem) = rules::place(address) else { return Some(address) };
        let attribute = element.attribute("Value")?;
        self.report.error(attribute.span(element), problem.to_string(), problem.help());
        None
    }

    /// The address of a side whose identity is another address, as behind a NAT that gives the side that one; the inner
    /// `None` is any address.
    fn elsewhere(&mut self, element: &Element<'_>) -> Option<Option<IpAddr>> {
        let attribute = element.attribute(ADDRESS)?;
        let value = self.trimmed(element, attribute);
        if value == "any" {
            return Some(None);
        }
        let place = value.parse::<IpAddr>().map(|address| rules::place(address).map(|()| address));
        let (message, help) = match place {
            Ok(Ok(address)) => return Some(Some(address)),
            Ok(Err(problem @ (Problem::OfLink(_) | Problem::Mapped(_)))) => {
                (problem.to_string(), problem.help())
            }
            Ok(Err(_)) | Err(_) => (
                format!("{ADDRESS} {} is no address of a host", quoted(value)),
                "write the address that this side has on its own interface, or any",
            ),
        };
        self.report.error(attribute.span(element), message, help);
        None
    }

    /// Refuses the attribute for the address of a side where the element names none; `None` after an error.
    pub fn names_no_side(&mut self, element: &Element<'_>) -> Option<()> {
        let Some(attribute) = element.attribute(ADDRESS) else { return Some(()) };
        let message = format!("{ADDRESS} belongs to an address that is the identity of a side");
        let help =
            "write it in the first element of IKELocalIdentity, IKERemoteIdentity or an IKEGroup";
        self.report.error(attribute.span(element), message, help);
        None
    }
}

fn starts_with_type(name: &str, attribute: &str) -> bool {
    name.get(..attribute.len()).is_some_and(|start| start.eq_ignore_ascii_case(attribute))
}
