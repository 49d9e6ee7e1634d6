//! Fields of a request, behind the question mark.

use super::condition::Condition;

/// Octets of a filter at most.
const LONGEST: usize = 200;

/// The tunnels that a reader wants to see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    /// The number of the page, from 1.
    pub page: usize,
    /// Text in a name, or in the peer's identity or address, in lower case; empty: any.
    pub filter: String,
    /// `None`: any.
    pub condition: Option<Condition>,
}

impl Query {
    /// Reads `page=2&filter=berlin&state=down`; each field may be absent.
    pub fn read(text: &str) -> Result<Self, &'static str> {
        let mut query = Self { page: 1, ..Self::default() };
        for (name, value) in fields(text)? {
            match name.as_str() {
                "page" => query.page = value.parse().map_err(|_| "page is a number from 1\n")?,
                "filter" if value.len() > LONGEST => {
                    return Err("a filter has at most 200 octets\n");
                }
                "filter" => query.filter = value.to_lowercase(),
                "state" if value.is_empty() => query.condition = None,
                "state" => {
                    let condition = Condition::named(&value);
                    let wrong = "state is up, negotiating, blocked or down\n";
                    query.condition = Some(condition.ok_or(wrong)?);
                }
                _ => return Err("the fields of a request are page, filter and state\n"),
            }
        }
        Ok(query)
    }
}

/// The value of the one field that a request has.
pub(super) fn only(name: &'static str, text: &str) -> Option<String> {
    match fields(text).ok()?.as_slice() {
        [(field, value)] if field == name => Some(value.clone()),
        _ => None,
    }
}

fn fields(text: &str) -> Result<Vec<(String, String)>, &'static str> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    let read = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decoded(name)?, decoded(value)?))
    };
    let wrong = "a percent sign stands before two hexadecimal digits, and the octets are UTF-8\n";
    pairs.map(|pair| read(pair).ok_or(wrong)).collect()
}

/// Undoes the escapes of a form: `%2f`, and `+` for a space.
fn decoded(text: &str) -> Option<String> {
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(octet) = rest.next() {
        octets.push(match octet {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            octet => octet,
        });
    }
    String::from_utf8(octets).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_in_any_order_and_without_escapes() {
        let read = |text| Query::read(text).expect("valid");
        assert_eq!(read(""), Query { page: 1, ..Query::default() });
        let query = read("state=down&filter=Caf%C3%A9+%26&page=12");
        let filter = "café &".to_owned();
        assert_eq!(query, Query { page: 12, filter, condition: Some(Condition::Down) });
        assert_eq!(read("filter=&state=").condition, None);
        assert_eq!(only("name", "name=a%2Fb"), Some("a/b".to_owned()));
        assert_eq!(only("name", "other=a"), None);
    }

    #[test]
    fn a_field_that_cannot_be_read_is_refused_with_a_reason() {
        let long = format!("filter={}", "x".repeat(LONGEST + 1));
        for (text, reason) in [
            ("page=-1", "page is a number"),
            ("page=x", "page is a number"),
            ("state=broken", "state is up"),
            ("sort=name", "the fields of a request"),
            ("filter=%", "a percent sign"),
            ("filter=%zz", "a percent sign"),
            ("filter=%+1", "a percent sign"),
            ("filter=%ff", "a percent sign"),
            (&long, "a filter has at most"),
        ] {
            let error = Query::read(text).expect_err(text);
            assert!(error.starts_with(reason) && error.ends_with('\n'), "{text}: {error}");
        }
    }
}
