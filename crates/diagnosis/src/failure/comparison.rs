//! The values of both sides, side by side.

use crate::explanation::Row;
use ike::failure::Facts;
use ike::failure::facts::{
    Addresses, Identities, Offer, Offers, Ppk, PpkLack, Shadowed, Traffic, Wanted,
};
use policy::{Identity, Selector};
use std::net::IpAddr;

/// The values of both sides; none for facts that have no sides.
pub(super) fn of(facts: &Facts) -> Vec<Row> {
    match facts {
        Facts::Offers(offers) => offered(offers),
        Facts::Identities(identities) => named(identities),
        Facts::Traffic(traffic) => wanted(traffic),
        Facts::Shadowed(claim) => claimed(claim),
        Facts::Ppk(ppk) => vec![ppk_row(ppk)],
        Facts::Modes(modes) => {
            vec![Row::of_equals(
                format!("mode of {}", modes.child),
                modes.ours,
                Some(modes.theirs.to_string()),
            )]
        }
        Facts::Addresses(Addresses { local, remote, known }) => {
            let address = |a: &Option<IpAddr>| a.map_or_else(|| "any".into(), |a| a.to_string());
            let there = format!("{local} to {remote}");
            let row = |(name, ours, theirs): &(String, Option<IpAddr>, Option<IpAddr>)| {
                let here = format!("{} to {}", address(ours), address(theirs));
                Row { item: name.clone(), here, there: Some(there.clone()), differs: true }
            };
            known.iter().map(row).collect()
        }
        _ => Vec::new(),
    }
}

/// The two proposals that come nearest to each other, transform by transform, and how many more there are.
fn offered(offers: &Offers) -> Vec<Row> {
    let names = |offer: Option<&Offer>, kind: &str| -> Vec<String> {
        let of_kind = offer.and_then(|o| o.transforms.iter().find(|t| t.kind == kind));
        match of_kind {
            Some(of_kind) => of_kind.names.clone(),
            // Only AH is named.
            None if kind == "protocol" && offer.is_some() => vec!["ESP".to_owned()],
            None => Vec::new(),
        }
    };
    let meet = |ours: Option<&Offer>, theirs: Option<&Offer>, kind: &str| {
        let (ours, theirs) = (names(ours, kind), names(theirs, kind));
        ours.iter().any(|o| theirs.contains(o)) || ours.is_empty() && theirs.is_empty()
    };
    const KINDS: [&str; 6] =
        ["protocol", "encryption", "integrity", "PRF", "group", "sequence numbers"];
    let theirs = offers.theirs.as_deref().unwrap_or_default();
    let alike = |(ours, theirs): &(&Offer, &Offer)| {
        let meet = |kind: &str| meet(Some(ours), Some(theirs), kind);
        (meet("protocol"), KINDS.iter().filter(|kind| meet(kind)).count())
    };
    // The first of those that are equally near.
    let pairs = offers.ours.iter().flat_map(|o| theirs.iter().map(move |t| (o, t)));
    let nearest = pairs.rev().max_by_key(alike);
    let (our, their) = match nearest {
        Some((ours, theirs)) => (Some(ours), Some(theirs)),
        None => (offers.ours.first(), theirs.first()),
    };
    let shown =
        |names: &[String]| if names.is_empty() { "none".into() } else { names.join(" or ") };
    let mut rows = Vec::new();
    for kind in KINDS {
        let (ours, thens) = (names(our, kind), names(their, kind));
        let mut here = shown(&ours);
        if kind == "group" && offers.group_optional {
            here = if ours.is_empty() { here } else { format!("{here} or none") };
        }
        let there = match (&offers.wanted_group, &offers.theirs) {
            (Some(wanted), _) if kind == "group" => Some(wanted.clone()),
            (_, Some(_)) => Some(shown(&thens)),
            (_, None) => None,
        };
        let is_wanted = kind == "group" && offers.wanted_group.is_some();
        // Nearly always ESP, on both sides.
        let needs_no_words = kind == "protocol" && (their.is_none() || ours == thens);
        if needs_no_words || ours.is_empty() && thens.is_empty() && !is_wanted {
            continue;
        }
        let optional = kind == "group" && offers.group_optional && thens.is_empty();
        let met = !is_wanted && (meet(our, their, kind) || optional);
        let differs = there.is_some() && !met;
        rows.push(Row { item: kind.to_owned(), here, there, differs });
    }
    let more = |n: usize| match n {
        0 | 1 => "none".to_owned(),
        n => format!("{} more", n - 1),
    };
    if offers.ours.len() > 1 || theirs.len() > 1 {
        let there = offers.theirs.as_ref().map(|t| more(t.len()));
        let here = more(offers.ours.len());
        rows.push(Row { item: "other proposals".to_owned(), here, there, differs: false });
    }
    rows
}

fn ppk_row(ppk: &Ppk) -> Row {
    let here = match ppk.lack {
        PpkLack::Key => "no key".to_owned(),
        _ => ppk.known.join(", "),
    };
    let here = if here.is_empty() { "none".to_owned() } else { here };
    let there = match (ppk.lack, &ppk.asked) {
        (PpkLack::Differs, Some(id)) => Some(format!("{id}, with other octets")),
        (PpkLack::Unannounced | PpkLack::Unnamed | PpkLack::Unused | PpkLack::Unshared, _) => {
            Some("none".to_owned())
        }
        (_, asked) => asked.clone(),
    };
    Row::of_equals("PPK", here, there)
}

fn named(identities: &Identities) -> Vec<Row> {
    let Identities { peer, asked, known, .. } = identities;
    let mut rows = Vec::new();
    for parties in known {
        let of = |what: &str| match known.len() {
            1 => what.to_owned(),
            _ => format!("{what} ({})", parties.tunnel),
        };
        rows.push(identity_row(of("the peer is"), &parties.remote, peer));
        if let Some(asked) = asked {
            rows.push(identity_row(of("this side is"), &parties.local, asked));
        }
    }
    rows
}

/// Two identities that meet. Their types are named if they differ, even if the values do as well.
fn identity_row(item: String, here: &Identity, there: &Identity) -> Row {
    let text = |identity: &Identity| match here.kind() == there.kind() {
        true => identity.to_string(),
        false => identity.qualified(),
    };
    Row { item, here: text(here), there: Some(text(there)), differs: !here.matches(there) }
}

fn wanted(traffic: &Traffic) -> Vec<Row> {
    let listed = |s: &[Selector]| {
        let words: Vec<String> = s.iter().map(ToString::to_string).collect();
        if words.is_empty() { "none".to_owned() } else { words.join(", ") }
    };
    let mut rows = Vec::new();
    for ours in &traffic.ours {
        let of = |what: &str| match traffic.ours.len() {
            1 => what.to_owned(),
            _ => format!("{what} ({})", ours.child),
        };
        let meets = |ours: &[Selector], theirs: &[Selector]| {
            ours.iter().any(|o| theirs.iter().any(|t| o.intersection(t).is_some()))
        };
        let mut compare = |what: &str, ours: &[Selector], theirs: Option<&Vec<Selector>>| {
            let differs = theirs.is_some_and(|t| !meets(ours, t));
            let there = theirs.map(|t| listed(t));
            rows.push(Row { item: of(what), here: listed(ours), there, differs });
        };
        let theirs = traffic.theirs.as_ref();
        compare("on this side", &ours.local, theirs.map(|t| &t.local));
        compare("on the peer's", &ours.remote, theirs.map(|t| &t.remote));
    }
    rows
}

fn claimed(claim: &Shadowed) -> Vec<Row> {
    let row = |wanted: &Wanted| {
        let list =
            |s: &[Selector]| s.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let here = format!("{} to {}", list(&wanted.local), list(&wanted.remote));
        Row::of_equals(format!("traffic of {}", wanted.child), here, None)
    };
    vec![row(&claim.shadowing_rule), row(&claim.wanted)]
}
