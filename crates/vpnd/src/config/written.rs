//! The file as a whole, with every setting as a comment that has its default: `config/vpnd.toml`.

use super::{
    Certificates, Control, Crypto, Esp, FamiliesSection, FilterSection, Ike, Log, Metrics,
    PolicyStore, Sa, Traces, Tunnel,
};
use settings::{Declared, Section};

/// Lines at the beginning of the file.
pub const HEAD: &[&str] = &[
    " Configuration of vpnd. The tunnels themselves are in the policy, an AIX_VPN XML file.",
    "",
    " vpnd reads /etc/vpnd/vpnd.toml if it exists, unless --config names another file. \"--config none\" reads no file.",
    " \"vpnctl status\" shows the file in use.",
    " Everything here is optional; the values shown are the defaults. Remove the # in front of a line to change it.",
    " Lengths of time are written \"500ms\", \"30s\", \"5m\" or \"1h\".",
    " A change takes effect when vpnd is started again (systemctl restart vpnd). A change of [filter] takes effect with",
    " \"vpnctl reload\".",
];

/// Every section that stands once, in the order of the file.
pub static SECTIONS: [Section; 11] = [
    PolicyStore::SECTION,
    Control::SECTION,
    Log::SECTION,
    Metrics::SECTION,
    Traces::SECTION,
    Ike::SECTION,
    Esp::SECTION,
    FamiliesSection::SECTION,
    FilterSection::SECTION,
    Certificates::SECTION,
    Crypto::SECTION,
];

/// Documentation of the tables that can stand more than once, in the order of the file.
pub const REPEATED: [&[&str]; 2] = [Sa::DOC, Tunnel::DOC];

/// The file.
pub fn text() -> String {
    let parts: Vec<String> = std::iter::once(comment(HEAD))
        .chain(SECTIONS.iter().map(ToString::to_string))
        .chain(REPEATED.iter().map(|lines| comment(lines)))
        .collect();
    parts.join("\n")
}

fn comment(lines: &[&str]) -> String {
    lines.iter().map(|line| format!("#{line}\n")).collect()
}
