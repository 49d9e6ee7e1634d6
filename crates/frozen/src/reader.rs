//! Reads records. Nothing is believed that the octets do not have: a list is as long as its octets.

use crate::{Clock, DEEPEST, Field, Unthawable};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Reads the fields of one record, in ascending order of their numbers. [`Reader::end`] follows the last one: it looks
/// for fields that this program does not know.
#[derive(Clone)]
#[must_use = "a record that is not read to its end may have fields that must not be ignored"]
pub struct Reader<'a> {
    record: &'static str,
    version: u16,
    depth: u8,
    rest: &'a [u8],
    /// The field at the beginning of `rest`, taken apart.
    next: Option<(Field, &'a [u8])>,
    /// The number of the last field that was read or ignored.
    last: Option<u16>,
    /// The number of the last field that was asked for.
    asked: Option<u16>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(record: &'static str, version: u16, rest: &'a [u8]) -> Self {
        Self { record, version, depth: 0, rest, next: None, last: None, asked: None }
    }

    /// The version of the format.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Ends the record.
    ///
    /// # Errors
    /// If there is another field, and it must not be ignored.
    pub fn end(mut self) -> Result<(), Unthawable> {
        while let Some((field, _)) = self.peek()? {
            self.pass(field)?;
        }
        Ok(())
    }

    /// Reads a number. The default is 0.
    ///
    /// # Errors
    /// If it does not fit.
    pub fn number<T: TryFrom<u64> + Default>(&mut self, field: Field) -> Result<T, Unthawable> {
        let value = self.number_if_any(field)?;
        Ok(value.unwrap_or_default())
    }

    /// Reads a number if there is one.
    ///
    /// # Errors
    /// If it does not fit.
    pub fn number_if_any<T: TryFrom<u64>>(
        &mut self,
        field: Field,
    ) -> Result<Option<T>, Unthawable> {
        let Some(octets) = self.take(field)? else { return Ok(None) };
        // One form for each number.
        if octets.len() > 8 || octets.first() == Some(&0) {
            return Err(self.invalid(field));
        }
        let value = octets.iter().fold(0, |value, octet| value << 8 | u64::from(*octet));
        T::try_from(value).map(Some).map_err(|_| self.invalid(field))
    }

    /// Reads a number that must be there, if only as 0.
    ///
    /// # Errors
    /// If it is missing, or does not fit.
    pub fn some_number<T: TryFrom<u64>>(&mut self, field: Field) -> Result<T, Unthawable> {
        self.number_if_any(field)?.ok_or_else(|| self.missing(field))
    }

    /// Reads whether something is so.
    ///
    /// # Errors
    /// If the value is neither.
    pub fn flag(&mut self, field: Field) -> Result<bool, Unthawable> {
        match self.number::<u64>(field)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.invalid(field)),
        }
    }

    /// Reads octets. The default is none.
    ///
    /// # Errors
    /// If the record is malformed.
    pub fn octets(&mut self, field: Field) -> Result<&'a [u8], Unthawable> {
        Ok(self.octets_if_any(field)?.unwrap_or_default())
    }

    /// Reads octets if there are any.
    ///
    /// # Errors
    /// If the record is malformed.
    pub fn octets_if_any(&mut self, field: Field) -> Result<Option<&'a [u8]>, Unthawable> {
        self.take(field)
    }

    /// Reads a certain number of octets, which must be there.
    ///
    /// # Errors
    /// If there is another number of them.
    pub fn array<const N: usize>(&mut self, field: Field) -> Result<[u8; N], Unthawable> {
        let octets = self.take(field)?.ok_or_else(|| self.missing(field))?;
        octets.try_into().map_err(|_| self.invalid(field))
    }

    /// Reads a text. The default is an empty one.
    ///
    /// # Errors
    /// If it is not UTF-8.
    pub fn text(&mut self, field: Field) -> Result<&'a str, Unthawable> {
        let octets = self.octets(field)?;
        std::str::from_utf8(octets).map_err(|_| self.invalid(field))
    }

    /// Reads a moment, which must be there.
    ///
    /// # Errors
    /// If it is missing.
    pub fn moment(&mut self, field: Field, clock: &Clock) -> Result<Instant, Unthawable> {
        self.moment_if_any(field, clock)?.ok_or_else(|| self.missing(field))
    }

    /// Reads a moment if there is one.
    ///
    /// # Errors
    /// If the record is malformed.
    pub fn moment_if_any(
        &mut self,
        field: Field,
        clock: &Clock,
    ) -> Result<Option<Instant>, Unthawable> {
        let value = self.number_if_any(field)?;
        Ok(value.map(|value| clock.at(unzigzag(value))))
    }

    /// Reads a length of time. The default is none.
    ///
    /// # Errors
    /// If the record is malformed.
    pub fn time(&mut self, field: Field) -> Result<Duration, Unthawable> {
        // The longest that is written stands for all longer ones.
        Ok(match self.number(field)? {
            u64::MAX => Duration::MAX,
            nanoseconds => Duration::from_nanos(nanoseconds),
        })
    }

    /// Reads an address, which must be there.
    ///
    /// # Errors
    /// If it is missing, or none.
    pub fn address(&mut self, field: Field) -> Result<IpAddr, Unthawable> {
        self.address_if_any(field)?.ok_or_else(|| self.missing(field))
    }

    /// Reads an address if there is one.
    ///
    /// # Errors
    /// If it is none.
    pub fn address_if_any(&mut self, field: Field) -> Result<Option<IpAddr>, Unthawable> {
        let Some(octets) = self.take(field)? else { return Ok(None) };
        address(octets).map(Some).ok_or_else(|| self.invalid(field))
    }

    /// Reads an address with a port, which must be there.
    ///
    /// # Errors
    /// If it is missing, or none.
    pub fn endpoint(&mut self, field: Field) -> Result<SocketAddr, Unthawable> {
        let octets = self.take(field)?.ok_or_else(|| self.missing(field))?;
        let endpoint = octets.split_last_chunk().and_then(|(octets, port)| {
            Some(SocketAddr::new(address(octets)?, u16::from_be_bytes(*port)))
        });
        endpoint.ok_or_else(|| self.invalid(field))
    }

    /// Reads a record. The default is one without fields. `record` says what it describes.
    ///
    /// # Errors
    /// If records lie too deep within each other.
    pub fn record(&mut self, field: Field, record: &'static str) -> Result<Self, Unthawable> {
        let octets = self.octets(field)?;
        self.inner(record, octets)
    }

    /// Reads a record if there is one.
    ///
    /// # Errors
    /// If records lie too deep within each other.
    pub fn record_if_any(
        &mut self,
        field: Field,
        record: &'static str,
    ) -> Result<Option<Self>, Unthawable> {
        let Some(octets) = self.take(field)? else { return Ok(None) };
        self.inner(record, octets).map(Some)
    }

    /// Reads a list of records. The default is an empty one. `record` says what each describes.
    ///
    /// # Errors
    /// If the lengths of its records do not fit, or records lie too deep within each other.
    pub fn list(&mut self, field: Field, record: &'static str) -> Result<List<'a>, Unthawable> {
        let octets = self.octets(field)?;
        let mut rest = octets;
        while !rest.is_empty() {
            (_, rest) = counted(rest).ok_or_else(|| self.invalid(field))?;
        }
        Ok(List(self.inner(record, octets)?))
    }

    /// The refusal of a value of this record.
    pub fn invalid(&self, field: Field) -> Unthawable {
        Unthawable::Invalid { record: self.record, field: field.number() }
    }

    /// The refusal of this record because a field is not there.
    pub fn missing(&self, field: Field) -> Unthawable {
        Unthawable::Missing { record: self.record, field: field.number() }
    }

    fn malformed(&self, why: &'static str) -> Unthawable {
        Unthawable::Malformed { record: self.record, why }
    }

    fn inner(&self, record: &'static str, rest: &'a [u8]) -> Result<Self, Unthawable> {
        let depth = self.depth + 1;
        if depth > DEEPEST {
            return Err(self.malformed("too many records lie within each other"));
        }
        Ok(Self { depth, ..Self::new(record, self.version, rest) })
    }

    /// The value of a field, if it is there.
    fn take(&mut self, field: Field) -> Result<Option<&'a [u8]>, Unthawable> {
        let number = Some(field.number());
        assert!(self.asked < number, "fields ascend: {field:?} stands behind {:?}", self.asked);
        self.asked = number;
        while let Some((found, value)) = self.peek()? {
            if found.number() > field.number() {
                break;
            }
            // A field that may be ignored in one version need not be in another.
            if found.number() == field.number() {
                self.step(found);
                return Ok(Some(value));
            }
            self.pass(found)?;
        }
        Ok(None)
    }

    /// Takes the next field apart.
    fn peek(&mut self) -> Result<Option<(Field, &'a [u8])>, Unthawable> {
        if self.next.is_none() && !self.rest.is_empty() {
            let short = || self.malformed("a field is longer than the record");
            let (field, rest) = self.rest.split_first_chunk().ok_or_else(short)?;
            let (value, rest) = counted(rest).ok_or_else(short)?;
            let field = Field(u16::from_be_bytes(*field));
            if self.last >= Some(field.number()) {
                return Err(self.malformed("its fields do not ascend"));
            }
            (self.next, self.rest) = (Some((field, value)), rest);
        }
        Ok(self.next)
    }

    /// Ignores a field that this program does not know.
    fn pass(&mut self, field: Field) -> Result<(), Unthawable> {
        if !field.may_be_ignored() {
            return Err(Unthawable::UnknownField { record: self.record, field: field.number() });
        }
        self.step(field);
        Ok(())
    }

    fn step(&mut self, field: Field) {
        (self.next, self.last) = (None, Some(field.number()));
    }
}

/// The records of a list.
#[derive(Clone)]
pub struct List<'a>(Reader<'a>);

impl<'a> Iterator for List<'a> {
    type Item = Reader<'a>;

    fn next(&mut self) -> Option<Reader<'a>> {
        let (record, rest) = counted(self.0.rest)?;
        self.0.rest = rest;
        Some(Reader { rest: record, ..self.0.clone() })
    }
}

/// So many octets as a length says, and the rest.
fn counted(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = octets.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => Some(Ipv4Addr::from(*octets.first_chunk()?).into()),
        16 => Some(Ipv6Addr::from(*octets.first_chunk::<16>()?).into()),
        _ => None,
    }
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}
