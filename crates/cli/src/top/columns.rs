//! The widths of the table's columns. An address is shown whole or not at all.

use super::model::Row;
use std::net::IpAddr;
use terminal::report::plain;

/// From this width on there is room for the peer and for packets each way.
const WIDE: usize = 110;

/// The widths of STATE, IN, OUT, packets, REFUSED and REKEY, with a blank before each and one before LAST.
const OTHERS: usize = 11 + 7 + 8 + 6 + 8 + 7 + 7;

/// The same with packets each way.
const OTHERS_WIDE: usize = 11 + 7 + 8 + 9 + 9 + 8 + 7 + 8;

/// Columns of the sparkline, at least and at most.
const LAST: (usize, usize) = (10, 30);

/// Columns that names have before the peer gets any.
const NAME: usize = 16;

/// The widths that depend on the terminal and on what is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    /// Packets have a column for each direction.
    pub wide: bool,
    /// The name of the tunnel.
    pub name: usize,
    /// The peer's address; `None`: there is no room for the longest.
    pub peer: Option<usize>,
    /// The sparkline; `None` and the two below: a name needs the room.
    pub last: Option<usize>,
    /// The time until the keys are renewed.
    pub rekey: bool,
    /// Packets per second.
    pub packets: bool,
}

impl Columns {
    /// The widths in a terminal of so many columns.
    pub fn of<'r>(width: usize, rows: impl Iterator<Item = &'r Row> + Clone) -> Self {
        if width < WIDE {
            return Self::narrow(width);
        }
        let room = width - OTHERS_WIDE - LAST.0;
        let names = rows.clone().map(|row| label(row).chars().count());
        let name = names.max().unwrap_or(0).max("TUNNEL▾".chars().count());
        let peers = rows.map(|row| row.peer.chars().count());
        let wanted = peers.max().unwrap_or(0).max("PEER".len()) + 1;
        let peer = Some(wanted).filter(|peer| peer + name.min(NAME) <= room);
        let room = room - peer.unwrap_or(0);
        let last = LAST.0 + room.saturating_sub(name).min(LAST.1 - LAST.0);
        let name = room + LAST.0 - last;
        let peer = peer.map(|peer| peer - 1);
        Self { wide: true, name, peer, last: Some(last), rekey: true, packets: true }
    }

    /// The widths where names come first: without some columns, if there is no room for all.
    fn narrow(width: usize) -> Self {
        const LAST_AND_BLANK: usize = LAST.0 + 1;
        const REKEY: usize = 7 + 1;
        const PACKETS: usize = 6 + 1;
        let mut others = OTHERS + LAST.0;
        // One column after the other leaves until the name has room.
        let [last, rekey, packets] = [LAST_AND_BLANK, REKEY, PACKETS].map(|columns| {
            let fits = width >= others + NAME;
            others -= if fits { 0 } else { columns };
            fits
        });
        let last = last.then_some(LAST.0);
        let name = width.saturating_sub(others);
        Self { wide: false, name, peer: None, last, rekey, packets }
    }
}

/// The name of a line's tunnel, the same at any width.
pub(super) fn label(row: &Row) -> String {
    plain(row.child.as_deref().unwrap_or(&row.tunnel)).into_owned()
}

/// A name in so many columns, with `…` where it is cut. An address at the end of a name is kept or left out as one
/// piece.
pub(super) fn fitted(name: &str, room: usize) -> String {
    if name.chars().count() <= room {
        return name.to_owned();
    }
    let Some(address) = address_at_end(name) else { return cut(name, room) };
    let carrier = &name[..name.len() - address.len()];
    let left = room.saturating_sub(address.chars().count());
    match left {
        0 => cut(carrier, room),
        _ => format!("{}{address}", cut(carrier, left)),
    }
}

/// The address with which the name of a group's tunnel ends, behind a colon.
fn address_at_end(name: &str) -> Option<&str> {
    let ends = name.match_indices(':').map(|(at, _)| &name[at + 1..]);
    ends.into_iter().find(|end| end.parse::<IpAddr>().is_ok())
}

fn cut(text: &str, room: usize) -> String {
    let kept: String = text.chars().take(room.saturating_sub(1)).collect();
    if room == 0 { kept } else { format!("{kept}…") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, peer: &str) -> Row {
        Row { child: Some(name.to_owned()), peer: peer.to_owned(), ..Row::default() }
    }

    #[test]
    fn the_peer_has_room_for_the_longest_address_or_none() {
        let long = "2001:db8:1111:2222:3333:4444:5555:6666";
        let rows = [row("site_lan", "192.0.2.2"), row("branch_lan", long)];
        for width in 0..300 {
            let columns = Columns::of(width, rows.iter());
            assert!(columns.peer.is_none_or(|peer| peer == long.len()), "{width}: {columns:?}");
            let used = columns.name + columns.peer.map_or(0, |peer| peer + 1);
            let last = columns.last.map_or(0, |last| last + 1);
            let others = if columns.wide { OTHERS_WIDE - 1 } else { OTHERS - 1 };
            let left_out = usize::from(!columns.rekey) * 8 + usize::from(!columns.packets) * 7;
            assert!(width < 40 || used + last + others - left_out == width, "{width}: {columns:?}");
            assert!(width < 54 || columns.name >= NAME || columns.wide, "{width}: {columns:?}");
        }
        assert_eq!(Columns::of(80, rows.iter()).name, 16);
        assert_eq!(Columns::of(80, rows.iter()).last, Some(10));
        assert_eq!(Columns::of(70, rows.iter()).name, 17);
        assert!(!Columns::of(60, rows.iter()).packets);
        assert_eq!(Columns::of(120, rows.iter()).peer, None);
        assert_eq!(Columns::of(140, rows.iter()).peer, Some(long.len()));
        assert_eq!(Columns::of(110, rows[..1].iter()).peer, Some("192.0.2.2".len()));
    }

    #[test]
    fn an_address_in_a_name_is_whole_or_missing() {
        assert_eq!(fitted("site_lan", 8), "site_lan");
        assert_eq!(fitted("warehouse_lan", 8), "warehou…");
        assert_eq!(fitted("clients:192.0.2.71", 16), "clien…192.0.2.71");
        assert_eq!(fitted("clients:2001:db8::71", 16), "cli…2001:db8::71");
        assert_eq!(fitted("clients:2001:db8:1:2:3:4:5:71", 16), "clients:…");
        for room in 0..30 {
            let text = fitted("clients:2001:db8:1:2:3:4:5:71", room);
            assert!(text.chars().count() <= room, "{room}: {text}");
            assert!(
                text.ends_with("…")
                    || text.ends_with("…2001:db8:1:2:3:4:5:71")
                    || room == 0
                    || room == 29
            );
        }
    }
}
