//! IPSecProposal: the protocols and algorithms of Child SAs.

use super::algorithm::{AH_INTEGRITY, ESP_AUTHENTICATION, ESP_ENCRYPTION};
use super::context::Context;
use super::table::Table;
use super::value::Word;
use crate::validate::{Problem, rules};
use crate::xml::element::Element;
use crate::xml::options::Algorithm;
use crate::xml::schema::AH_ALGORITHM;
use crate::{Integrity, Mode, Protection};

/// One IPSecESPProtocol or IPSecAHProtocol; its overlap and whether its volume counts are the IPSecProtection's
/// business.
#[derive(Clone, Copy)]
pub(super) struct Offer {
    pub protection: Protection,
    pub esn: bool,
    pub mode: Mode,
    pub minutes: u64,
    pub kilobytes: u64,
}

/// Reads every IPSecProposal: the alternatives in it, in order of preference.
pub(super) fn offers(cx: &mut Context<'_>, root: &Element<'_>) -> Table<Vec<Offer>> {
    let mut table = Table::new("IPSecProposal");
    for element in root.children_named("IPSecProposal") {
        let name = element.attribute("IPSec_ProposalName");
        let of_ikev1 = name.is_some_and(|name| cx.ikev1.proposals.contains(name.trimmed()));
        let alternatives = if of_ikev1 { None } else { alternatives(cx, element) };
        table.insert(cx, element, "IPSec_ProposalName", alternatives);
    }
    table
}

fn alternatives(cx: &mut Context<'_>, element: &Element<'_>) -> Option<Vec<Offer>> {
    if element.children.is_empty() && !element.damaged {
        let help = "put an <IPSecESPProtocol …/> inside it";
        cx.report.error(element.span(), "IPSecProposal holds no IPSecESPProtocol", help);
    }
    let mut offers = Vec::new();
    for child in &element.children {
        offers.push(match child.name {
            "IPSecESPProtocol" => esp(cx, child),
            "IPSecAHProtocol" => ah(cx, child),
            // Reported, and spoils the whole.
            _ => None,
        });
    }
    let [esp, ah] =
        ["IPSecESPProtocol", "IPSecAHProtocol"].map(|name| element.children_named(name).next());
    if let (Some(_), Some(ah)) = (esp, ah) {
        let message = "ESP and AH in one IPSecProposal are a bundle, both on each packet, which IKEv2 does not have";
        let help = "use ESP alone, which protects integrity as well; or, for alternatives, write an IPSecProposal for \
                    each and list both in IPSec_ProposalRefs";
        cx.report.error(ah.span(), message, help);
        return None;
    }
    if let Some(ah) = ah {
        let message = "AH does not encrypt: everybody on the way can read the traffic";
        let help = "use ESP with ESP_AES256_GCM_16 on both sides, which protects integrity as well";
        cx.report.warning(ah.span(), message, help);
    }
    offers.into_iter().collect::<Option<Vec<_>>>().filter(|offers| !offers.is_empty())
}

fn esp(cx: &mut Context<'_>, element: &Element<'_>) -> Option<Offer> {
    let protection = esp_protection(cx, element);
    if let Some(protection) = protection {
        cx.advise(element, "ESP_Encryption", Algorithm::Child(protection));
    }
    offer(cx, element, "ESP", protection)
}

fn esp_protection(cx: &mut Context<'_>, esp: &Element<'_>) -> Option<Protection> {
    let encryption = cx.word(esp, "ESP_Encryption", &ESP_ENCRYPTION);
    let integrity = match esp.attribute("ESP_Authentication") {
        None => Some(None),
        Some(_) => cx.word(esp, "ESP_Authentication", &ESP_AUTHENTICATION),
    };
    let (encryption, integrity) = (encryption?, integrity?);
    let protection = Protection::Esp { encryption, integrity };
    if let Err(problem) = rules::protection(protection) {
        let (message, help) = match problem {
            Problem::EspIntegrityUnused(_) => (
                format!("{encryption} protects integrity itself: ESP_Authentication must be NONE"),
                "write ESP_Authentication=\"NONE\"",
            ),
            Problem::EspIntegrityMissing(_) => (
                format!("{encryption} without ESP_Authentication is not secure"),
                "write ESP_Authentication=\"HMAC-SHA2-256\", or use ESP_AES256_GCM_16",
            ),
            other => (other.to_string(), other.help()),
        };
        let attribute = esp.attribute("ESP_Authentication").or(esp.attribute("ESP_Encryption"));
        let span = attribute.map_or_else(|| esp.span(), |attribute| attribute.span(esp));
        cx.report.error(span, message, help);
        return None;
    }
    if let (Some(reason), Some(attribute)) =
        (encryption.row().weak, esp.attribute("ESP_Encryption"))
    {
        let message = format!(
            "{} DOES NOT KEEP THE TRAFFIC SECRET from whoever records enough of it: its {reason}",
            attribute.trimmed(),
        );
        let help = "use ESP_AES256_GCM_16 on both sides as soon as the peer has it (RFC 8221)";
        cx.report.warning(attribute.span(esp), message, help);
    }
    if integrity.is_some_and(Integrity::is_weak) {
        cx.warn_weak(esp, "ESP_Authentication", "HMAC-SHA2-256, or HMAC-SHA for an old peer,");
    }
    if let (false, Some(attribute)) = (encryption.hides(), esp.attribute("ESP_Encryption")) {
        let message = format!(
            "{} does not encrypt: everybody on the way can read the traffic",
            attribute.trimmed()
        );
        let help = "use ESP_AES256_GCM_16 on both sides, which protects integrity as well";
        cx.report.warning(attribute.span(esp), message, help);
    }
    Some(protection)
}

fn ah(cx: &mut Context<'_>, element: &Element<'_>) -> Option<Offer> {
    let name = cx.one_spelling(element, AH_ALGORITHM);
    let integrity = name.and_then(|name| cx.word(element, name, &AH_INTEGRITY));
    if let (Some(name), Some(integrity)) = (name, integrity) {
        if integrity.is_weak() {
            cx.warn_weak(element, name, "AH_SHA2_256, or AH_SHA for an old peer,");
        }
        cx.advise(element, name, Algorithm::Child(Protection::Ah(integrity)));
    }
    offer(cx, element, "AH", integrity.map(Protection::Ah))
}

/// Reads the attributes that ESP and AH have in common, or takes their defaults.
fn offer(
    cx: &mut Context<'_>,
    element: &Element<'_>,
    protocol: &str,
    protection: Option<Protection>,
) -> Option<Offer> {
    const MODE: &[Word<Mode>] = &[("Tunnel", Ok(Mode::Tunnel)), ("Transport", Ok(Mode::Transport))];

    let names = ["EncapsulationMode", "ExtendedSeqNum", "KeyRefreshMinutes", "KeyRefreshKB"]
        .map(|what| format!("{protocol}_{what}"));
    let present = names.each_ref().map(|name| element.attribute(name).is_some());
    let mode = if present[0] { cx.word(element, &names[0], MODE) } else { Some(Mode::Tunnel) };
    let esn = if present[1] { cx.number(element, &names[1], 0..=1) } else { Some(0) };
    let minutes = if present[2] { cx.minutes(element, &names[2]) } else { Some(480) };
    let kilobytes = if present[3] { cx.kilobytes(element, &names[3]) } else { Some(0) };
    Some(Offer {
        protection: protection?,
        esn: esn? == 1,
        mode: mode?,
        minutes: minutes?,
        kilobytes: kilobytes?,
    })
}
