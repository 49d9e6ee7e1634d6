//! Encryption beside decryption: the cipher alone, without packets, for a cipher that chains its blocks and one that
//! does not.

use super::SIZES;
use crate::experiment::alone::{CBC, Cipher, GCM};
use crate::experiment::lab::Lab;
use crate::experiment::sources::ipfire;
use crate::plot::{Axis, Panel, Plot, Series, Style};
use crate::report::Report;
use crate::statistics::Spread;
use crate::table::Table;
use ::crypto::Provider;
use serde::Serialize;
use std::time::Duration;

const CIPHERS: [Cipher; 2] = [GCM, CBC];

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
            for cipher in CIPHERS {
                lab.step(format!("{} alone, {size} octets", cipher.name))?;
                let [encrypt_gbit_s, decrypt_gbit_s] =
                    cipher.gbit_s(Provider::AwsLc, size, time)?;
                rows.push(Row { round, cipher: cipher.name, size, encrypt_gbit_s, decrypt_gbit_s });
            }
        }
    }
    Ok(rows)
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
    let lines =
        [(0, GCM.name), (1, CBC.name)].into_iter().flat_map(|c| directions.map(|d| line(c, d)));
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
        for Cipher { name: cipher, .. } in CIPHERS {
            let show = |figure: fn(&Row) -> f64, digits| {
                of(cipher, size, figure).map_or_else(|| "–".to_owned(), |s| s.show(digits))
            };
            table.row([
                size.to_string(),
                cipher.to_owned(),
                show(|row| row.encrypt_gbit_s, 1),
                show(|row| row.decrypt_gbit_s, 1),
                of(cipher, size, |row| row.decrypt_gbit_s / row.encrypt_gbit_s)
                    .map_or_else(|| "–".to_owned(), |ratio| ratio.show_ratio(2)),
            ]);
        }
    }
    report.table(&table);
    report.say(format!(
        "AWS-LC with the instructions of this processor. GCM is measured with its authentication, whose blocks can be done side by \
         side, too. CBC is measured without its HMAC: the time of the HMAC alone is taken off. A block of CBC is encrypted when \
         the block before it is, but all blocks can be decrypted at once. {} AWS-LC and ring compute the key stream of several \
         blocks of a packet at once. Nothing is computed in advance: these libraries take a nonce together with its packet.",
        ipfire::KEY_STREAM,
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_of_each_size_are_drawn() {
        let row =
            |cipher, size| Row { round: 0, cipher, size, encrypt_gbit_s: 2.0, decrypt_gbit_s: 6.0 };
        let rows: Vec<Row> =
            SIZES.iter().flat_map(|s| [row(GCM.name, *s), row(CBC.name, *s)]).collect();
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
