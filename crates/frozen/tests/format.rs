//! The format: what is written is read again, by this version and by older ones, and nothing else is.

use frozen::{Clock, Field, Frozen, Reader, Unthawable, VERSION, Writer};
use proptest::prelude::*;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

const A: Field = Field::new(1);
const B: Field = Field::new(2);
const C: Field = Field::new(3);

/// A frozen state with this record, in that version of the format.
fn state(version: u16, record: &[u8]) -> Result<Frozen, Unthawable> {
    let length = u64::try_from(record.len()).expect("memory has fewer octets");
    let head = [&b"VPNFROZE"[..], &version.to_be_bytes(), &length.to_be_bytes()].concat();
    Frozen::of_octets([&head, record].concat())
}

fn read(frozen: &Frozen) -> Reader<'_> {
    frozen.read("a test").expect("its head was read before")
}

/// A value of each kind.
fn every_kind(to: &mut Writer<'_>, clock: &Clock, base: Instant) {
    to.number(Field::new(1), 258_u32);
    to.number_if_any(Field::new(2), Some(0_u32));
    to.flag(Field::new(3), true);
    to.octets(Field::new(4), b"octets");
    to.octets_if_any(Field::new(5), Some(b""));
    to.text(Field::new(6), "t\u{e9}xt");
    to.moment(Field::new(7), clock, base + Duration::from_nanos(1));
    to.moment(Field::new(8), clock, base - Duration::from_secs(1));
    to.moment(Field::new(9), clock, base);
    to.time(Field::new(10), Duration::from_millis(2));
    to.time(Field::new(11), Duration::MAX);
    to.address(Field::new(12), IpAddr::from([192, 0, 2, 1]));
    to.address(Field::new(13), IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]));
    to.endpoint(Field::new(14), SocketAddr::from(([192, 0, 2, 1], 4500)));
    to.endpoint(Field::new(15), SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 500)));
    to.record(Field::new(16), |to| to.number(A, 1_u8));
    to.record_if_any(Field::new(17), Some(()), |_, ()| {});
    to.list(Field::new(18), [1_u8, 0, 2], |to, value| to.number(A, value));
    to.octets(Field::ignorable(19), b"a remark");
}

fn assert_every_kind(frozen: &Frozen, base: Instant) -> Result<(), Unthawable> {
    let clock = Clock::new(base);
    let mut from = read(frozen);
    assert_eq!(from.version(), VERSION);
    assert_eq!(from.number::<u16>(Field::new(1))?, 258);
    assert_eq!(from.number_if_any::<u32>(Field::new(2))?, Some(0));
    assert!(from.flag(Field::new(3))?);
    assert_eq!(from.octets(Field::new(4))?, b"octets");
    assert_eq!(from.octets_if_any(Field::new(5))?, Some(&b""[..]));
    assert_eq!(from.text(Field::new(6))?, "t\u{e9}xt");
    assert_eq!(from.moment(Field::new(7), &clock)?, base + Duration::from_nanos(1));
    assert_eq!(from.moment(Field::new(8), &clock)?, base - Duration::from_secs(1));
    assert_eq!(from.moment_if_any(Field::new(9), &clock)?, Some(base));
    assert_eq!(from.time(Field::new(10))?, Duration::from_millis(2));
    assert_eq!(from.time(Field::new(11))?, Duration::MAX);
    assert_eq!(from.address(Field::new(12))?, IpAddr::from([192, 0, 2, 1]));
    assert_eq!(from.address(Field::new(13))?, IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]));
    assert_eq!(from.endpoint(Field::new(14))?, SocketAddr::from(([192, 0, 2, 1], 4500)));
    assert_eq!(from.endpoint(Field::new(15))?.port(), 500);
    let mut part = from.record(Field::new(16), "a part")?;
    assert_eq!(part.number::<u8>(A)?, 1);
    part.end()?;
    assert!(from.record_if_any(Field::new(17), "a part")?.is_some());
    let parts = from.list(Field::new(18), "a part")?;
    let parts: Result<Vec<u8>, _> = parts.map(|mut part| part.number(A)).collect();
    assert_eq!(parts?, [1, 0, 2]);
    from.end()
}

#[test]
fn every_kind_of_value_is_read_again() -> Result<(), Unthawable> {
    let base = Instant::now() + Duration::from_secs(60);
    let frozen = Frozen::write(|to| every_kind(to, &Clock::new(base), base));
    assert_every_kind(&frozen, base)?;
    // Another process has another clock.
    let later = base + Duration::from_secs(5);
    assert_every_kind(&Frozen::of_octets(frozen.octets().to_vec())?, later)
}

/// The file is never written again: it is what the first version has written.
#[test]
fn the_first_version_is_read() -> Result<(), Unthawable> {
    let base = Instant::now() + Duration::from_secs(60);
    let recorded = include_bytes!("recorded/1.frozen");
    assert_every_kind(&Frozen::of_octets(recorded.to_vec())?, base)?;
    let today = Frozen::write(|to| every_kind(to, &Clock::new(base), base));
    assert_eq!(today.octets(), recorded, "the format has changed without a new version");
    Ok(())
}

#[test]
fn defaults_are_read_where_nothing_is_written() -> Result<(), Unthawable> {
    let frozen = state(1, &[])?;
    let mut from = read(&frozen);
    assert_eq!(from.number::<u64>(Field::new(1))?, 0);
    assert_eq!(from.number_if_any::<u64>(Field::new(2))?, None);
    assert!(!from.flag(Field::new(3))?);
    assert!(from.octets(Field::new(4))?.is_empty() && from.text(Field::new(5))?.is_empty());
    assert_eq!(from.time(Field::new(6))?, Duration::ZERO);
    assert!(from.record_if_any(Field::new(7), "a part")?.is_none());
    assert_eq!(from.list(Field::new(8), "a part")?.count(), 0);
    let missing = |field| Unthawable::Missing { record: "a test", field };
    assert_eq!(from.some_number::<u8>(Field::new(9)), Err(missing(9)));
    assert_eq!(from.address(Field::new(10)), Err(missing(10)));
    assert_eq!(from.array::<4>(Field::new(11)), Err(missing(11)));
    from.end()
}

#[test]
fn a_newer_format_is_refused_with_both_numbers() {
    let refused = state(VERSION + 1, b"whatever it has become").err();
    assert_eq!(refused, Some(Unthawable::Newer { found: VERSION + 1, known: VERSION }));
    let text = refused.map(|refusal| refusal.to_string()).unwrap_or_default();
    assert!(text.contains("newer version, in format 2") && text.contains("up to 1"), "{text}");
    // Also one that has another length behind the version.
    let cut = Frozen::of_octets(b"VPNFROZE\xff\xff".to_vec());
    assert_eq!(cut.err(), Some(Unthawable::Newer { found: u16::MAX, known: VERSION }));
}

#[test]
fn an_unknown_field_is_ignored_only_if_it_may_be() -> Result<(), Unthawable> {
    for unknown in [Field::ignorable(2), Field::new(2)] {
        let frozen = Frozen::write(|to| {
            to.number(A, 1_u8);
            to.number(unknown, 2_u8);
            to.number(C, 3_u8);
        });
        let (mut between, mut behind) = (read(&frozen), read(&frozen));
        let refusal = Unthawable::UnknownField { record: "a test", field: 2 };
        assert_eq!(between.number::<u8>(A)?, 1);
        assert_eq!(behind.number::<u8>(A)?, 1);
        match unknown == B {
            true => {
                assert_eq!(between.number::<u8>(C), Err(refusal.clone()));
                assert_eq!(behind.end(), Err(refusal));
            }
            false => {
                assert_eq!(between.number::<u8>(C)?, 3);
                between.end()?;
                // Field 3 is unknown, too.
                let refusal = Unthawable::UnknownField { record: "a test", field: 3 };
                assert_eq!(behind.end(), Err(refusal));
            }
        }
    }
    Ok(())
}

#[test]
fn a_field_that_may_be_ignored_now_is_read_by_those_who_know_it() -> Result<(), Unthawable> {
    let frozen = Frozen::write(|to| to.number(Field::ignorable(1), 7_u8));
    let mut from = read(&frozen);
    assert_eq!(from.number::<u8>(A)?, 7);
    from.end()
}

#[test]
fn foreign_and_incomplete_octets_are_refused() {
    let whole = Frozen::write(|to| to.octets(A, b"secret"));
    for len in 0..whole.octets().len() {
        let cut = Frozen::of_octets(whole.octets()[..len].to_vec());
        assert!(cut.is_err(), "{len} octets are taken for the whole");
    }
    let longer = [whole.octets(), b"\0"].concat();
    assert!(Frozen::of_octets(longer).is_err());
    assert_eq!(Frozen::of_octets(b"<?xml version".to_vec()).err(), Some(Unthawable::Foreign));
    assert!(state(0, &[]).is_err());
}

#[test]
fn a_malformed_record_is_refused() -> Result<(), Unthawable> {
    let field = |number: u16, value: &[u8]| {
        let length = u32::try_from(value.len()).expect("it is short");
        [&number.to_be_bytes()[..], &length.to_be_bytes(), value].concat()
    };
    for (record, why) in [
        (vec![0], "less than a number"),
        (vec![0, 1, 0, 0], "less than a length"),
        (vec![0, 1, 0, 0, 0, 2, 7], "a length beyond the record"),
        (vec![0, 1, 0xff, 0xff, 0xff, 0xff, 7], "a length beyond any record"),
        ([field(1, b"\x01"), field(1, b"\x01")].concat(), "the same field twice"),
        ([field(2, b"\x01"), field(1, b"\x01")].concat(), "a field behind a higher one"),
        ([field(1, b"\x01"), field(0x8001, b"\x01")].concat(), "the same number twice"),
    ] {
        let frozen = state(1, &record)?;
        let mut from = read(&frozen);
        let read = from.number::<u8>(A).and_then(|_| from.number::<u8>(B));
        let read = read.and_then(|_| from.end());
        assert!(matches!(read, Err(Unthawable::Malformed { .. })), "{why}: {read:?}");
    }
    let invalid = Unthawable::Invalid { record: "a test", field: 1 };
    for (value, why) in [
        (&b"\0"[..], "a zero in front"),
        (&b"\0\x01"[..], "a zero in front"),
        (&b"\x01\0"[..], "more than fits"),
        (&b"123456789"[..], "more octets than any number has"),
    ] {
        let frozen = state(1, &field(1, value))?;
        assert_eq!(read(&frozen).number::<u8>(A), Err(invalid.clone()), "{why}");
    }
    let frozen = state(1, &field(1, b"\x02"))?;
    assert_eq!(read(&frozen).flag(A), Err(invalid.clone()));
    let frozen = state(1, &field(1, b"\xff\xff\xff"))?;
    assert_eq!(read(&frozen).text(A), Err(invalid.clone()));
    assert_eq!(read(&frozen).address(A), Err(invalid.clone()));
    assert_eq!(read(&frozen).endpoint(A), Err(invalid.clone()));
    assert_eq!(read(&frozen).array::<4>(A), Err(invalid.clone()));
    assert_eq!(read(&frozen).list(A, "a part").err(), Some(invalid));
    Ok(())
}

#[test]
fn records_within_records_have_a_bound() {
    fn nest(to: &mut Writer<'_>, depth: u32) {
        match depth {
            0 => to.flag(A, true),
            _ => to.record(A, |to| nest(to, depth - 1)),
        }
    }
    fn unnest(mut from: Reader<'_>, depth: u32) -> Result<(), Unthawable> {
        match depth {
            0 => from.flag(A).map(drop),
            _ => unnest(from.record(A, "a part")?, depth - 1),
        }
    }
    for (depth, readable) in [(12, true), (13, false), (200, false)] {
        let frozen = Frozen::write(|to| nest(to, depth));
        assert_eq!(unnest(read(&frozen), depth).is_ok(), readable, "{depth} records");
    }
}

#[test]
fn debug_shows_no_octets() {
    let frozen = Frozen::write(|to| to.octets(A, b"secret"));
    assert_eq!(format!("{frozen:?}"), "Frozen(30 octets)");
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Number(u64),
    Octets(Vec<u8>),
    Record(Vec<(u16, Value)>),
    List(Vec<Vec<(u16, Value)>>),
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<u64>().prop_map(Value::Number),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Value::Octets),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        let record = prop::collection::btree_map(0..60_u16, inner, 0..5)
            .prop_map(|fields| fields.into_iter().collect::<Vec<_>>());
        prop_oneof![
            record.clone().prop_map(Value::Record),
            prop::collection::vec(record, 0..4).prop_map(Value::List),
        ]
    })
}

fn write(to: &mut Writer<'_>, fields: &[(u16, Value)]) {
    for (number, value) in fields {
        let field = Field::new(*number);
        match value {
            Value::Number(number) => to.number_if_any(field, Some(*number)),
            Value::Octets(octets) => to.octets_if_any(field, Some(octets)),
            Value::Record(fields) => to.record_if_any(field, Some(()), |to, ()| write(to, fields)),
            Value::List(records) => to.list(field, records, |to, fields| write(to, fields)),
        }
    }
}

/// Reads a record as one that has such fields.
fn read_like(mut from: Reader<'_>, like: &[(u16, Value)]) -> Result<Vec<(u16, Value)>, Unthawable> {
    let mut fields = Vec::new();
    for (number, value) in like {
        let field = Field::new(*number);
        let value = match value {
            Value::Number(_) => Value::Number(from.some_number(field)?),
            Value::Octets(_) => {
                let octets = from.octets_if_any(field)?.ok_or_else(|| from.missing(field))?;
                Value::Octets(octets.to_vec())
            }
            Value::Record(like) => Value::Record(read_like(from.record(field, "a part")?, like)?),
            Value::List(like) => {
                let records = from.list(field, "a part")?.zip(like);
                let records: Result<_, _> =
                    records.map(|(record, like)| read_like(record, like)).collect();
                Value::List(records?)
            }
        };
        fields.push((*number, value));
    }
    from.end()?;
    Ok(fields)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn whatever_is_written_is_read_again(
        fields in prop::collection::btree_map(0..99_u16, value(), 0..8),
        noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let fields: Vec<_> = fields.into_iter().collect();
        let frozen = Frozen::write(|to| write(to, &fields));
        let again = Frozen::of_octets(frozen.octets().to_vec());
        let again = again.and_then(|frozen| read_like(frozen.read("a test")?, &fields));
        prop_assert_eq!(again, Ok(fields.clone()));
        // Octets that were changed on the way are read as something else, or refused; nothing more happens.
        let mut changed = frozen.octets().to_vec();
        for (at, octet) in noise {
            let at = at.index(changed.len());
            changed[at] = octet;
        }
        let _ = Frozen::of_octets(changed).and_then(|frozen| read_like(frozen.read("a test")?, &fields));
    }
}
