//! `vpnd demo`: shows the demo of the crate `demo` to people.

use demo::{DemoError, Findings};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::process::ExitCode;
use std::time::Duration;
use terminal::report::{Colour, Fields, bytes, count, duration, plain, rate};

/// Runs the demo, with traffic for `length`, and prints what it found. Must be called while the process has a single
/// thread.
pub fn run(length: Duration, json: bool) -> ExitCode {
    match demo::run(length, &progress(length, json)) {
        Ok(findings) => {
            if json {
                match serde_json::to_string_pretty(&findings) {
                    Ok(text) => println!("{text}"),
                    Err(error) => eprintln!("vpnd demo: {error}"),
                }
            } else {
                print!("{}", report(&findings, length, Colour::of_stdout()));
            }
            if findings.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error @ DemoError::Interrupted) => {
            eprintln!("vpnd demo: {error}");
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("vpnd demo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn progress(length: Duration, json: bool) -> ProgressBar {
    let target = if json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let milliseconds = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    let bar = ProgressBar::with_draw_target(Some(milliseconds), target);
    let style = ProgressStyle::with_template("{bar:30.green} {percent:>3}%  {msg}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn report(findings: &Findings, length: Duration, colour: Colour) -> String {
    let mut text = format!(
        "{}  two gateways on this machine, {} of traffic\n",
        colour.heading("vpnd demo"),
        duration(length)
    );
    let [lost, cleartext] =
        [(findings.packets_lost, "lost"), (findings.cleartext_packets, "packets in the clear")]
            .map(|(n, packets)| {
                let text = format!("{} {packets}", count(n));
                if n == 0 { colour.good(&text) } else { colour.bad(&text) }
            });
    let travels = if findings.encapsulation == "udp" { "in UDP" } else { "natively" };
    let mut fields = Fields::new("  ");
    fields.add("IKE", plain(&findings.ike_suite).into_owned());
    fields.add("ESP", format!("{}, {} mode, {travels}", plain(&findings.esp_suite), findings.mode));
    fields.add("SPIs", format!("in {}, out {}", findings.esp_spis[0], findings.esp_spis[1]));
    fields.add(
        "rekeys",
        format!(
            "{} of the Child SA, {} of the IKE SA, all under traffic",
            findings.child_rekeys, findings.ike_rekeys
        ),
    );
    fields.add(
        "packets",
        format!(
            "{} at 1 kHz, {lost}, round trip {} (99 %: {})",
            count(findings.packets_sent),
            milliseconds(findings.round_trip_median_us),
            milliseconds(findings.round_trip_p99_us),
        ),
    );
    fields.add(
        "TCP",
        format!(
            "{}, {} at full speed, every octet right",
            bytes(findings.tcp_bytes),
            rate(findings.throughput_bps)
        ),
    );
    fields.add(
        "wire",
        format!(
            "{} frames, {} IKE messages, {cleartext}",
            count(findings.wire_frames),
            count(findings.ike_messages),
        ),
    );
    fields.write(&mut text, colour);
    for problem in &findings.problems {
        text.push_str(&format!("{} {problem}\n", colour.bad("problem:")));
    }
    text
}

fn milliseconds(microseconds: u64) -> String {
    format!("{}.{:02} ms", microseconds / 1000, microseconds % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_fits_a_screen() {
        assert_eq!(
            report(&Findings::example(), Duration::from_secs(12), Colour(false)),
            "\
vpnd demo  two gateways on this machine, 12s of traffic
  IKE      AES-CBC-256/HMAC-SHA2-256-128/PRF-HMAC-SHA2-256/ECP-256
  ESP      AES-GCM-16-256, tunnel mode, in UDP
  SPIs     in 10000001, out 20000002
  rekeys   4 of the Child SA, 3 of the IKE SA, all under traffic
  packets  8 000 at 1 kHz, 0 lost, round trip 0.24 ms (99 %: 1.93 ms)
  TCP      1.0 GiB, 2.4 Gbit/s at full speed, every octet right
  wire     900 000 frames, 26 IKE messages, 0 packets in the clear
"
        );
    }
}
