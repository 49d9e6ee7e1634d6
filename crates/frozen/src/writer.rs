//! Writes records.

use crate::octets::Octets;
use crate::{Clock, Field};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Writes the fields of one record, in ascending order of their numbers.
///
/// A method writes nothing if the value is the default of its field. The methods that end in `_if_any` tell a value that
/// is the default from none at all.
pub struct Writer<'a> {
    octets: &'a mut Octets,
    /// The number of the last field.
    last: Option<u16>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(octets: &'a mut Octets) -> Self {
        Self { octets, last: None }
    }

    /// Writes a number. The default is 0.
    pub fn number(&mut self, field: Field, value: impl Into<u64>) {
        let value = value.into();
        if value != 0 {
            self.number_if_any(field, Some(value));
        }
    }

    /// Writes a number if there is one.
    pub fn number_if_any(&mut self, field: Field, value: Option<impl Into<u64>>) {
        let Some(value) = value.map(Into::into) else { return };
        let octets = value.to_be_bytes();
        let unused = usize::try_from(value.leading_zeros() / 8).expect("it is at most 8");
        self.value(field, |to| to.push(&octets[unused..]));
    }

    /// Writes whether something is so. The default is `false`.
    pub fn flag(&mut self, field: Field, value: bool) {
        self.number(field, u64::from(value));
    }

    /// Writes octets. The default is none.
    pub fn octets(&mut self, field: Field, value: &[u8]) {
        if !value.is_empty() {
            self.octets_if_any(field, Some(value));
        }
    }

    /// Writes octets if there are any; they may be none in number.
    pub fn octets_if_any(&mut self, field: Field, value: Option<&[u8]>) {
        if let Some(value) = value {
            self.value(field, |to| to.push(value));
        }
    }

    /// Writes a text. The default is an empty one.
    pub fn text(&mut self, field: Field, value: &str) {
        self.octets(field, value.as_bytes());
    }

    /// Writes a moment.
    pub fn moment(&mut self, field: Field, clock: &Clock, value: Instant) {
        self.moment_if_any(field, clock, Some(value));
    }

    /// Writes a moment if there is one.
    pub fn moment_if_any(&mut self, field: Field, clock: &Clock, value: Option<Instant>) {
        self.number_if_any(field, value.map(|at| zigzag(clock.of(at))));
    }

    /// Writes a length of time, in nanoseconds. The default is none. A time of more than five centuries becomes one of
    /// five centuries.
    pub fn time(&mut self, field: Field, value: Duration) {
        self.number(field, u64::try_from(value.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Writes an address.
    pub fn address(&mut self, field: Field, value: IpAddr) {
        match value {
            IpAddr::V4(address) => self.octets(field, &address.octets()),
            IpAddr::V6(address) => self.octets(field, &address.octets()),
        }
    }

    /// Writes an address with a port.
    pub fn endpoint(&mut self, field: Field, value: SocketAddr) {
        let port = value.port().to_be_bytes();
        match value.ip() {
            IpAddr::V4(address) => self.octets(field, &[&address.octets()[..], &port].concat()),
            IpAddr::V6(address) => self.octets(field, &[&address.octets()[..], &port].concat()),
        }
    }

    /// Writes a record. The default is one without fields.
    pub fn record(&mut self, field: Field, write: impl FnOnce(&mut Writer<'_>)) {
        let before = self.octets.len();
        self.record_if_any(field, Some(()), |to, ()| write(to));
        if self.octets.len() == before + FIELD_HEAD {
            self.octets.cut(before);
        }
    }

    /// Writes a record if there is one; it may have no fields.
    pub fn record_if_any<T>(
        &mut self,
        field: Field,
        value: Option<T>,
        write: impl FnOnce(&mut Writer<'_>, T),
    ) {
        if let Some(value) = value {
            self.value(field, |to| write(&mut Writer::new(to), value));
        }
    }

    /// Writes a list of records. The default is an empty one.
    pub fn list<T>(
        &mut self,
        field: Field,
        values: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Writer<'_>, T),
    ) {
        let mut values = values.into_iter().peekable();
        if values.peek().is_none() {
            return;
        }
        self.value(field, |to| {
            for value in values {
                counted(to, |to| write(&mut Writer::new(to), value));
            }
        });
    }

    fn value(&mut self, field: Field, write: impl FnOnce(&mut Octets)) {
        let number = Some(field.number());
        assert!(self.last < number, "fields ascend: {field:?} stands behind {:?}", self.last);
        self.last = number;
        self.octets.push(&field.0.to_be_bytes());
        counted(self.octets, write);
    }
}

/// Octets of a field before its value.
const FIELD_HEAD: usize = 2 + LENGTH;

/// Octets of a length.
const LENGTH: usize = 4;

/// Writes a length, and so many octets.
fn counted(to: &mut Octets, write: impl FnOnce(&mut Octets)) {
    let at = to.len();
    to.push(&[0; LENGTH]);
    write(to);
    let length = to.len() - at - LENGTH;
    let length = u32::try_from(length).expect("a gateway's state has fewer than 4 GiB");
    to.put(at, &length.to_be_bytes());
}

/// A number whose sign is its last bit, so that small negative numbers are short.
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frozen, Unthawable};

    #[test]
    #[should_panic(expected = "fields ascend")]
    fn a_field_behind_a_higher_one_is_a_bug() {
        Frozen::write(|to| {
            to.flag(Field::new(2), true);
            to.flag(Field::new(1), true);
        });
    }

    #[test]
    fn defaults_take_no_room() {
        let frozen = Frozen::write(|to| {
            to.number(Field::new(1), 0_u32);
            to.flag(Field::new(2), false);
            to.octets(Field::new(3), &[]);
            to.text(Field::new(4), "");
            to.time(Field::new(5), Duration::ZERO);
            to.record(Field::new(6), |_| {});
            to.list(Field::new(7), [0; 0], |_, _| {});
            to.number_if_any(Field::new(8), None::<u32>);
            to.octets_if_any(Field::new(9), None);
        });
        assert_eq!(frozen.octets(), b"VPNFROZE\0\x01\0\0\0\0\0\0\0\0");
    }

    #[test]
    fn zigzag_keeps_small_numbers_small() {
        assert_eq!(
            [0, -1, 1, -2, i64::MAX, i64::MIN].map(zigzag),
            [0, 1, 2, 3, u64::MAX - 1, u64::MAX]
        );
    }

    #[test]
    fn memory_that_grows_keeps_what_is_written() -> Result<(), Unthawable> {
        let large = vec![7; 100_000];
        let frozen = Frozen::write(|to| {
            to.record(Field::new(1), |to| {
                to.octets(Field::new(1), &large);
                to.octets(Field::new(2), &large);
            });
        });
        let mut from = frozen.read("a test")?;
        let mut inner = from.record(Field::new(1), "a part")?;
        assert_eq!(inner.octets(Field::new(1))?, large);
        assert_eq!(inner.octets(Field::new(2))?, large);
        inner.end()?;
        from.end()
    }
}
