//! Encryption beside decryption: the cipher alone, without packets, for a cipher that chains its blocks and one that does not.

use super::SIZES;
use crate::experiment::lab::Lab;
use crate::experiment::sources::ipfire;
use crate::plot::{Axis, Panel, Plot, Series, Style};
use crate::report::Report;
use crate::statistics::Spread;
use crate::table::Table;
use ::crypto::{CipherError, Provider, Speed, Suite};
use serde::Serialize;
use std::time::Duration;

const GCM: &str = "AES-128-GCM";
const CBC: &str = "AES-128-CBC";

/// A suite, and what is taken off its time so that the cipher is left.
const CIPHERS: [(&str, &str, Option<&str>); 2] = [
    (GCM, "AES-GCM-16-128", None),
    (CBC, "AES-CBC-128/HMAC-SHA2-256-128", Some("NULL/HMAC-SHA2-256-128")),
];

/// One measurement: gigabits of packets in a second of one processor.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    round: usize,
    cipher: &'static str,
    size: usize,
    encrypt_gbit_s: f64,
    decrypt_gbit_s: f64,
}

/// Measures every cipher at every size, round by round.
///
/// # Errors
/// After a signal.
pub(super) fn measure(lab: &Lab, rounds: usize, time: Duration) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for round in 0..rounds {
        for size in SIZES {
            for (cipher, suite, without) in CIPHERS {
                lab.step(format!("{cipher} alone, {size} octets"))?;
                let of = |name: &str| speed(name, size, time).map_err(|e| format!("{name}: {e}"));
                let [mut encrypt, mut decrypt] = seconds(of(suite)?);
                if let Some(without) = without {
                    let [seal, open] = seconds(of(without)?);
                    (encrypt, decrypt) = (encrypt - seal, decrypt - open);
                }
                let gbit_s = |seconds: f64| size as f64 * 8.0 / 1e9 / seconds.max(1e-10);
                let (encrypt_gbit_s, decrypt_gbit_s) = (gbit_s(encrypt), gbit_s(decrypt));
                rows.push(Row { round, cipher, size, encrypt_gbit_s, decrypt_gbit_s });
            }
        }
    }
    Ok(rows)
}

fn speed(suite: &str, size: usize, time: Duration) -> Result<Speed, CipherError> {
    let suite: Suite = suite.parse().expect("a suite's name");
    Speed::measure(Provider::AwsLc, suite, size, time)
}

/// Of one packet.
fn seconds(speed: Speed) -> [f64; 2] {
    [speed.seal, speed.open].map(f64::recip)
}

pub(super) fn write(report: &mut Report, rows: &[Row]) {
    report.section("Encryption and decryption by the cipher alone");
    let of = |cipher: &'static str, size: usize, figure: fn(&Row) -> f64| {
        let fits = move |row: &&Row| row.cipher == cipher && row.size == size;
        Spread::of(rows.iter().filter(fits).map(figure))
    };
    let encryption: fn(&Row) -> f64 = |row| row.encrypt_gbit_s;
    let decryption: fn(&Row) -> f64 = |row| row.decrypt_gbit_s;
    let directions = [("encryption", encryption, false), ("decryption", decryption, true)];
    let line =
        |(colour, cipher): (usize, &'static str), (word, figure, dashed): (_, _, _)| Series {
            name: format!("{cipher}, {word}"),
            style: Style { colour, dashed },
            points: SIZES
                .iter()
                .filter_map(|s| Some((*s as f64, of(cipher, *s, figure)?)))
                .collect(),
        };
    let lines = [(0, GCM), (1, CBC)].into_iter().flat_map(|c| directions.map(|d| line(c, d)));
    report.plot(
        "directions",
        &Plot {
            title: "Encryption and decryption on one processor, without packets".to_owned(),
            quote: ipfire::PARALLEL.to_string(),
            panels: vec![Panel {
                caption: String::new(),
                x: Axis::steps("packet length (octets)", &SIZES),
                y: Axis::linear("throughput of one processor (Gbit/s)"),
                series: lines.collect(),
                mark: None,
            }],
            columns: 1,
        },
    );
    let mut table = Table::new([
        "octets",
        "cipher",
        "encryption, Gbit/s",
        "decryption, Gbit/s",
        "decryption ÷ encryption",
    ]);
    for size in SIZES {
        for (cipher, ..) in CIPHERS {
            let show = |figure: fn(&Row) -> f64, digits| {
                of(cipher, size, figure).map_or_else(|| "–".to_owned(), |s| s.show(digits))
            };
            table.row([
                size.to_string(),
                cipher.to_owned(),
                show(|row| row.encrypt_gbit_s, 1),
                show(|row| row.decrypt_gbit_s, 1),
                show(|row| row.decrypt_gbit_s / row.encrypt_gbit_s, 2),
            ]);
        }
    }
    report.table(&table);
    report.say(
        "AWS-LC with the instructions of this processor. GCM is measured with its authentication, whose blocks can be done side by \
         side, too. CBC is measured without its HMAC: the time of the HMAC alone is taken off. A block of CBC is encrypted when \
         the block before it is, but all blocks can be decrypted at once.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suites_are_there() {
        for name in
            CIPHERS.iter().flat_map(|(_, suite, without)| [Some(*suite), *without]).flatten()
        {
            assert!(speed(name, 64, Duration::from_millis(1)).is_ok(), "{name}");
        }
    }

    #[test]
    fn both_directions_of_each_size_are_drawn() {
        let row =
            |cipher, size| Row { round: 0, cipher, size, encrypt_gbit_s: 2.0, decrypt_gbit_s: 6.0 };
        let rows: Vec<Row> = SIZES.iter().flat_map(|s| [row(GCM, *s), row(CBC, *s)]).collect();
        let mut report = Report::new("Title");
        write(&mut report, &rows);
        let text = report.text();
        assert!(
            text.contains(
                "| 64 | AES-128-CBC | 2.0 (2.0–2.0) | 6.0 (6.0–6.0) | 3.00 (3.00–3.00) |"
            ),
            "{text}"
        );
    }
}
