//! SAs that are keyed by hand, for people.

use super::fitting::Fitting;
use super::{Colour, bytes, count, plain};
use control::protocol::{ManualSaInfo, SaList, SaName, SaRemoved};

const HEADER: [&str; 13] = [
    "BY HAND",
    "WAY",
    "SPI",
    "SOURCE",
    "DESTINATION",
    "MODE",
    "LOCAL",
    "REMOTE",
    "PACKETS",
    "BYTES",
    "REFUSED",
    "SEQUENCE",
    "SUITE",
];

/// The columns of LOCAL and REMOTE, SUITE, SOURCE and DESTINATION, and the name.
const MOVABLE: &[&[usize]] = &[&[6, 7], &[12], &[3, 4], &[0]];

/// A line for each; nothing where there are none.
pub fn manual(sas: &[ManualSaInfo], colour: Colour) -> String {
    if sas.is_empty() {
        return String::new();
    }
    let mut table = Fitting::new(HEADER, MOVABLE);
    for sa in sas {
        let esn = if sa.esn { "/ESN" } else { "" };
        table.row([
            plain(&sa.name).into_owned(),
            sa.direction.clone(),
            sa.spi.clone(),
            sa.source.to_string(),
            sa.destination.to_string(),
            sa.mode.clone(),
            sa.local.join(","),
            sa.remote.join(","),
            count(sa.packets),
            bytes(sa.bytes),
            count(sa.refused),
            sa.sequence.map_or("-".to_owned(), count),
            format!("{}{esn}", plain(&sa.suite)),
        ]);
    }
    table.render(colour)
}

/// The same, and the names whose traffic is blocked.
pub fn sa_list(list: &SaList, colour: Colour) -> String {
    let SaList { sas, blocked } = list;
    let mut text = manual(sas, colour);
    if sas.is_empty() {
        text.push_str("no SA is keyed by hand\n");
    }
    for name in blocked {
        text += &format!(
            "{0}: no SA, and its traffic is blocked; to release it: vpnctl sa remove {0:?}\n",
            plain(name)
        );
    }
    text
}

/// SAs that were added, a line for each.
pub fn sas_added(added: &[SaName]) -> String {
    let lines =
        added.iter().map(|sa| format!("{}: {} {} added\n", plain(&sa.name), sa.direction, sa.spi));
    let mut text: String = lines.collect();
    text.push_str(
        "gone when vpnd stops; to keep them, put the same [[sa]] tables into its vpnd.toml\n",
    );
    text
}

/// SAs that were removed, and the fate of their traffic.
pub fn sa_removed(removed: &SaRemoved) -> String {
    let SaRemoved { name, sas, blocked, configured } = removed;
    let name = plain(name);
    let count = match sas {
        0 => "no SA was left".to_owned(),
        1 => "1 SA removed".to_owned(),
        count => format!("{count} SAs removed"),
    };
    let traffic = match blocked {
        true => format!(
            "its traffic stays blocked until SAs of this name are added; to release it: vpnctl sa remove {name:?}"
        ),
        false => "its traffic is neither protected nor blocked any more: it takes the host's other routes, in the clear"
            .to_owned(),
    };
    let back = match configured {
        true => format!(
            "{name}: vpnd.toml defines these SAs: they are back when vpnd is started again\n"
        ),
        false => String::new(),
    };
    format!("{name}: {count}; {traffic}\n{back}")
}
