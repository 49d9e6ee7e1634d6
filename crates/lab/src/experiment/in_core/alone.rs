//! The ciphers alone in the three states: what the instructions do for AES itself, beside which TCP has other costs.

use super::State;
use crate::experiment::alone::{CBC, Cipher, GCM};
use crate::experiment::lab::Effort;
use crate::experiment::software;
use crate::experiment::sources::ipfire;
use crate::plot::{Axis, Panel, Plot, Series};
use crate::report::Report;
use crate::statistics::Spread;
use crate::table::Table;
use ::crypto::Provider;
use serde::Serialize;
use std::process::Command;
use std::time::Duration;

/// Octets of a packet.
const SIZE: usize = 1400;
const CIPHERS: [Cipher; 2] = [GCM, CBC];
const DIRECTIONS: [&str; 2] = ["encryption", "decryption"];

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    round: usize,
    state: &'static str,
    cipher: &'static str,
    direction: &'static str,
    cipher_gbit_s: f64,
}

/// Measures all ciphers in a state.
///
/// # Errors
/// If this program cannot be started again with its instructions hidden.
pub(super) fn measure(effort: Effort, state: State, round: usize) -> Result<Vec<Row>, String> {
    let speeds = match state {
        State::Portable => speeds(Provider::Portable, effort)?,
        State::InCore => speeds(Provider::AwsLc, effort)?,
        State::Library => of_child(effort)?,
    };
    let row = |(cipher, speeds): (&Cipher, [f64; 2])| {
        let directions = DIRECTIONS.into_iter().zip(speeds);
        let (state, cipher) = (state.name(), cipher.name);
        directions.map(move |(direction, cipher_gbit_s)| Row {
            round,
            state,
            cipher,
            direction,
            cipher_gbit_s,
        })
    };
    Ok(CIPHERS.iter().zip(speeds).flat_map(row).collect())
}

/// Gigabits a second of each cipher, encrypted and decrypted.
fn speeds(provider: Provider, effort: Effort) -> Result<Vec<[f64; 2]>, String> {
    let time = Duration::from_millis(effort.pick(2, 50, 200));
    CIPHERS.iter().map(|cipher| cipher.gbit_s(provider, SIZE, time)).collect()
}

/// Prints the speeds of AWS-LC in this process.
///
/// # Errors
/// If a cipher is missing.
pub(crate) fn print(effort: Effort) -> Result<(), String> {
    let speeds = speeds(Provider::AwsLc, effort)?;
    println!("{}", serde_json::to_string(&speeds).map_err(|error| error.to_string())?);
    Ok(())
}

/// The speeds of AWS-LC's software: it looks for instructions when a process starts.
fn of_child(effort: Effort) -> Result<Vec<[f64; 2]>, String> {
    let refused =
        |error: &dyn std::fmt::Display| format!("this program without instructions: {error}");
    let own = std::env::current_exe().map_err(|error| refused(&error))?;
    let mut child = Command::new(own);
    child.args(["in-core", "--raw"]).args(effort.option().split_whitespace());
    child.envs(software::WITHOUT_INSTRUCTIONS.iter().copied());
    let output = child.output().map_err(|error| refused(&error))?;
    serde_json::from_slice(&output.stdout).map_err(|error| {
        let said = String::from_utf8_lossy(&output.stderr);
        refused(&format!("{error}; {}", said.trim()))
    })
}

pub(super) fn write(report: &mut Report, rows: &[Row], states: &[State]) {
    let of = |state: State, cipher: &str, direction: &str| -> Vec<f64> {
        let fits = |row: &&Row| {
            (row.state, row.cipher, row.direction) == (state.name(), cipher, direction)
        };
        rows.iter().filter(fits).map(|row| row.cipher_gbit_s).collect()
    };
    let cases = || CIPHERS.iter().flat_map(|c| DIRECTIONS.map(|direction| (c.name, direction)));
    report.section("The ciphers alone");
    let series = states.iter().map(|state| Series {
        name: state.name().to_owned(),
        style: state.style(),
        points: (0_u8..)
            .zip(cases())
            .filter_map(|(at, (cipher, direction))| {
                Some((f64::from(at), Spread::of(of(*state, cipher, direction))?))
            })
            .collect(),
    });
    report.plot(
        "cipher-alone",
        &Plot {
            title: "Ciphers alone on one processor, in-core off and on".to_owned(),
            quote: ipfire::INSTRUCTIONS.of("IPFire"),
            panels: vec![Panel {
                caption: String::new(),
                x: Axis::groups(
                    "cipher and direction",
                    cases().map(|(cipher, direction)| format!("{cipher}, {direction}")),
                ),
                y: Axis::logarithmic("throughput of one processor (Gbit/s)"),
                series: series.collect(),
                mark: None,
            }],
            columns: 1,
        },
    );
    let off: Vec<State> = State::OFF.into_iter().filter(|state| states.contains(state)).collect();
    let mut heads = vec!["cipher".to_owned(), "direction".to_owned()];
    heads.extend(states.iter().map(|state| format!("{}, Gbit/s", state.name())));
    heads.extend(off.iter().map(|off| format!("on ÷ {}", off.name())));
    heads.push("document of IPFire".to_owned());
    let mut table = Table::new(heads);
    for (cipher, direction) in cases() {
        let rate = |state: &State| {
            Spread::of(of(*state, cipher, direction)).map_or("–".into(), |s| s.show(2))
        };
        let gain = |off: &State| {
            let on = of(State::InCore, cipher, direction);
            let pairs = on.into_iter().zip(of(*off, cipher, direction));
            Spread::of(pairs.map(|(on, off)| on / off)).map_or("–".into(), |s| s.show_ratio(1))
        };
        let mut row = vec![cipher.to_owned(), direction.to_owned()];
        row.extend(states.iter().map(rate));
        row.extend(off.iter().map(gain));
        row.push(ipfire::INSTRUCTIONS_GAIN.to_owned());
        table.row(row);
    }
    report.table(&table);
    report.say(format!(
        "Packets of {SIZE} octets in one thread, without IPsec around them: AES itself, of which the document of IPFire speaks. \
         GCM is with its authentication, CBC without its HMAC. The document does not say which software it compares with, nor \
         which mode.",
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gain_of_a_cipher_stands_beside_the_document_s() {
        let mut rows = Vec::new();
        for (round, factor) in [1.0, 1.1].into_iter().enumerate() {
            for (state, speed) in State::ALL.into_iter().zip([1.0, 4.0, 20.0]) {
                rows.extend(CIPHERS.iter().flat_map(|cipher| {
                    DIRECTIONS.map(|direction| Row {
                        round,
                        state: state.name(),
                        cipher: cipher.name,
                        direction,
                        cipher_gbit_s: speed * factor,
                    })
                }));
            }
        }
        let mut report = Report::new("Title");
        write(&mut report, &rows, &State::ALL);
        let row = "| AES-128-CBC | decryption | 1.05 (1.00–1.10) | 4.20 (4.00–4.40) | 21.00 (20.00–22.00) | 20.0 (20.0–20.0) \
                   | 5.0 (5.0–5.0) | up to 4 or 5 |";
        assert!(report.text().contains(row), "{}", report.text());
    }
}
