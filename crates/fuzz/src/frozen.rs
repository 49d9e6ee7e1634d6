//! Frozen states: the format itself.

use frozen::{Clock, Field, Frozen, Reader, Unthawable};
use std::time::{Duration, Instant};

/// Reads octets as a frozen state, and as the record of one. The first octets decide which fields are asked for, and as
/// what.
pub fn frozen(data: &[u8]) {
    let (script, octets) = data.split_at(data.len().min(SCRIPT));
    let length = u64::try_from(octets.len()).expect("memory has fewer octets").to_be_bytes();
    let whole = [&b"VPNFROZE\0\x01"[..], &length, octets].concat();
    for octets in [octets.to_vec(), whole] {
        let len = octets.len();
        let Ok(frozen) = Frozen::of_octets(octets) else { continue };
        assert!(format!("{frozen:?}").len() < 40, "a frozen state shows its length only");
        let mut read = 0;
        let from = frozen.read("a fuzzed state").expect("its head was read before");
        _ = fields(from, script, &mut read);
        assert!(read <= len, "{read} records are in {len} octets");
    }
}

/// Octets that decide.
const SCRIPT: usize = 16;

/// Reads a record, and those within it. `read` counts them.
fn fields(mut from: Reader<'_>, script: &[u8], read: &mut usize) -> Result<(), Unthawable> {
    *read += 1;
    let clock = Clock::new(epoch());
    let mut number = 0;
    for octet in script {
        number += u16::from(octet >> 4) % 4 + 1;
        let field = Field::new(number);
        match octet & 15 {
            0 => _ = from.number::<u8>(field)?,
            1 => _ = from.number_if_any::<u64>(field)?,
            2 => _ = from.some_number::<u32>(field),
            3 => _ = from.flag(field)?,
            4 => _ = from.text(field),
            5 => _ = from.moment_if_any(field, &clock)?,
            6 => _ = from.time(field)?,
            7 => _ = from.address(field),
            8 => _ = from.endpoint(field),
            9 => _ = from.array::<16>(field),
            10..13 => {
                for part in from.list(field, "a part")? {
                    _ = fields(part, script, read);
                }
            }
            13..15 => {
                if let Some(part) = from.record_if_any(field, "a part")? {
                    _ = fields(part, script, read);
                }
            }
            _ => _ = from.octets(field)?,
        }
    }
    from.end()
}

#[allow(clippy::disallowed_methods, reason = "only differences matter")]
fn epoch() -> Instant {
    Instant::now() + Duration::from_secs(1)
}
