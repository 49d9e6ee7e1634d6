//! The values of both sides, side by side.

use crate::explanation::Row;
use ike::failure::Facts;
use ike::failure::facts::{Addresses, Identities, Offer, Offers, Ppk, PpkLack, Shadowed, Traffic};
use policy::{Identity, Selector};

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
            let there = format!("{local} to {remote}");
            let rows = known.iter().map(|(name, ours, theirs)| {
                let [ours, theirs] = [ours, theirs]
                    .map(|address| address.map_or_else(|| "any".to_owned(), |a| a.to_string()));
                let here = format!("{ours} to {theirs}");
                Row { item: name.clone(), here, there: Some(there.clone()), differs: true }
            });
            rows.collect()
        }
        _ => Vec::new(),
    }
}

/// The two proposals that come nearest to each other, transform by transform, and how many more there are.
fn offered(offers: &Offers) -> Vec<Row> {
    const KINDS: [&str; 6] =
        ["protocol", "encryption", "integrity", "PRF", "group", "sequence numbers"];
    let theirs = offers.theirs.as_deref().unwrap_or_default();
    let mut pairs: Vec<(&Offer, &Offer)> =
        offers.ours.iter().flat_map(|o| theirs.iter().map(move |t| (o, t))).collect();
    // `max_by_key` takes the last of those that are equally near, and the first is wanted.
    pairs.reverse();
    let nearest = pairs.into_iter().max_by_key(|(ours, theirs)| {
        let (ours, theirs) = (Some(*ours), Some(*theirs));
        let common = KINDS.iter().filter(|kind| meet(ours, theirs, kind)).count();
        (meet(ours, theirs, "protocol"), common)
    });
    let (our, their) = match nearest {
        Some((ours, theirs)) => (Some(ours), Some(theirs)),
        None => (offers.ours.first(), theirs.first()),
    };
    let mut rows = Vec::new();
    for kind in KINDS {
        let (ours, thens) = (names(our, kind), names(their, kind));
        let mut here = alternatives(&ours);
        if kind == "group" && offers.group_optional {
            here = if ours.is_empty() { here } else { format!("{here} or none") };
        }
        let there = match (&offers.wanted_group, &offers.theirs) {
            (Some(wanted), _) if kind == "group" => Some(wanted.clone()),
            (_, Some(_)) => Some(alternatives(&thens)),
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
    if offers.ours.len() > 1 || theirs.len() > 1 {
        let there = offers.theirs.as_ref().map(|t| more_than_one(t.len()));
        let here = more_than_one(offers.ours.len());
        rows.push(Row { item: "other proposals".to_owned(), here, there, differs: false });
    }
    rows
}

/// The transforms of one kind that an offer names.
fn names(offer: Option<&Offer>, kind: &str) -> Vec<String> {
    let of_kind = offer.and_then(|o| o.transforms.iter().find(|t| t.kind == kind));
    match of_kind {
        Some(of_kind) => of_kind.names.clone(),
        // Only AH is named.
        None if kind == "protocol" && offer.is_some() => vec!["ESP".to_owned()],
        None => Vec::new(),
    }
}

fn meet(ours: Option<&Offer>, theirs: Option<&Offer>, kind: &str) -> bool {
    let (ours, theirs) = (names(ours, kind), names(theirs, kind));
    ours.iter().any(|o| theirs.contains(o)) || ours.is_empty() && theirs.is_empty()
}

fn alternatives(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(" or ") }
}

fn more_than_one(n: usize) -> String {
    match n {
        0 | 1 => "none".to_owned(),
        n => format!("{} more", n - 1),
    }
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
        // With one candidate, the rows need no name.
        let of = match known.len() {
            1 => String::new(),
            _ => format!(" ({})", parties.tunnel),
        };
        rows.push(identity_row(format!("the peer is{of}"), &parties.remote, peer));
        if let Some(asked) = asked {
            rows.push(identity_row(format!("this side is{of}"), &parties.local, asked));
        }
    }
    rows
}

/// Two identities that meet. Their types are named if they differ, even if the values do as well.
fn identity_row(item: String, here: &Identity, there: &Identity) -> Row {
    let differs = !here.matches(there);
    let [here, there] = match here.kind() == there.kind() {
        true => [here, there].map(ToString::to_string),
        false => [here, there].map(Identity::qualified),
    };
    Row { item, here, there: Some(there), differs }
}

fn wanted(traffic: &Traffic) -> Vec<Row> {
    let mut rows = Vec::new();
    for ours in &traffic.ours {
        let of = match traffic.ours.len() {
            1 => String::new(),
            _ => format!(" ({})", ours.child),
        };
        let theirs = traffic.theirs.as_ref();
        let sides = [
            ("on this side", &ours.local, theirs.map(|t| &t.local)),
            ("on the peer's", &ours.remote, theirs.map(|t| &t.remote)),
        ];
        rows.extend(sides.map(|(side, ours, theirs)| Row {
            item: format!("{side}{of}"),
            here: listed(ours),
            there: theirs.map(|theirs| listed(theirs)),
            differs: theirs.is_some_and(|theirs| !overlap(ours, theirs)),
        }));
    }
    rows
}

fn listed(selectors: &[Selector]) -> String {
    if selectors.is_empty() { "none".to_owned() } else { joined(selectors) }
}

fn joined(selectors: &[Selector]) -> String {
    selectors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn overlap(ours: &[Selector], theirs: &[Selector]) -> bool {
    ours.iter().any(|o| theirs.iter().any(|t| o.intersection(t).is_some()))
}

fn claimed(claim: &Shadowed) -> Vec<Row> {
    let rows = [&claim.shadowing_rule, &claim.wanted].map(|wanted| {
        let here = format!("{} to {}", joined(&wanted.local), joined(&wanted.remote));
        Row::of_equals(format!("traffic of {}", wanted.child), here, None)
    });
    rows.into()
}
