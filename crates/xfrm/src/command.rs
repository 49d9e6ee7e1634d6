//! This plane's states and policies in the kernel, as commands of `ip xfrm` that would install them.

#![forbid(unsafe_code)]

use super::flow::address;
use super::netlink::{Kernel, Netlink, Refused, wipe};
use super::ownership::Own;
use super::state::name_of;
use netlink_packet_xfrm::policy::ModifyMessage as PolicyMessage;
use netlink_packet_xfrm::state::ModifyMessage as StateMessage;
use netlink_packet_xfrm::{
    IPPROTO_AH, IPPROTO_ESP, LifetimeConfig, Selector, UserTemplate, XFRM_INF, XFRM_MODE_TRANSPORT,
    XFRM_POLICY_BLOCK, XFRM_POLICY_IN, XFRM_POLICY_OUT, XFRM_STATE_AF_UNSPEC, XFRM_STATE_ESN,
    XfrmAttrs, XfrmMessage,
};
use std::fmt::Write;
use std::io;
use zeroize::Zeroizing;

/// Lists the states and policies of this plane in the calling thread's network namespace as commands, states first, in
/// the order in which they came: typed in this order, they are listed as they are here. With `keys` they hold the keys;
/// `device` names a device by its index.
///
/// # Errors
/// Where the kernel does not tell.
pub fn commands(keys: bool, device: &dyn Fn(u32) -> String) -> io::Result<Vec<Zeroizing<String>>> {
    let mut kernel = Netlink::open()?;
    commands_on(&mut kernel, keys, device).map_err(io::Error::other)
}

fn commands_on(
    kernel: &mut dyn Kernel,
    keys: bool,
    device: &dyn Fn(u32) -> String,
) -> Result<Vec<Zeroizing<String>>, Refused> {
    let mut commands = Vec::new();
    let Own { states, policies } = Own::list(kernel)?;
    for listed in states {
        let info = &listed.user_sa_info;
        if !keys {
            commands.push(state(&listed, device));
            continue;
        }
        // The list comes without keys.
        match kernel.ask(XfrmMessage::GetSa(name_of(info, &listed.nlas))) {
            Ok(mut answer) => {
                if let XfrmMessage::AddSa(found) | XfrmMessage::UpdateSa(found) = &answer {
                    commands.push(state(found, device));
                }
                wipe(&mut answer);
            }
            // It has gone since.
            Err(error) if error.is_absent() => {}
            Err(error) => return Err(error),
        }
    }
    commands.extend(policies.iter().map(|found| Zeroizing::new(policy(found, device))));
    Ok(commands)
}

fn state(message: &StateMessage, device: &dyn Fn(u32) -> String) -> Zeroizing<String> {
    let info = &message.user_sa_info;
    // As long as it can get: a growing buffer leaves copies of keys behind.
    let mut text = Zeroizing::new(String::with_capacity(2048));
    let _ = write!(
        text,
        "ip xfrm state add src {} dst {} proto {} spi 0x{:08x} reqid {} mode {}",
        address(&info.saddr, info.family),
        address(&info.id.daddr, info.family),
        protocol(info.id.proto),
        info.id.spi,
        info.reqid,
        mode(info.mode)
    );
    let esn = message.nlas.iter().find_map(|attribute| match attribute {
        XfrmAttrs::ReplayStateEsn(replay) => Some(replay.replay_window),
        _ => None,
    });
    let window = esn.unwrap_or(info.replay_window.into());
    if window > 0 {
        let _ = write!(text, " replay-window {window}");
    }
    for (flag, name) in [(XFRM_STATE_ESN, "esn"), (XFRM_STATE_AF_UNSPEC, "af-unspec")] {
        if info.flags & flag != 0 {
            let _ = write!(text, " flag {name}");
        }
    }
    attributes(&mut text, &message.nlas);
    for attribute in &message.nlas {
        match attribute {
            XfrmAttrs::EncapsulationTemplate(encap) => {
                let any =
                    if info.family == netlink_packet_xfrm::AF_INET { "0.0.0.0" } else { "::" };
                let (source, destination) = (encap.encap_sport, encap.encap_dport);
                let _ = write!(text, " encap espinudp {source} {destination} {any}");
            }
            XfrmAttrs::OffloadDevice(offload) => {
                let name = device(offload.ifindex.unsigned_abs());
                let packet = if offload.flags & 4 != 0 { "packet " } else { "" };
                let way = if offload.flags & 2 != 0 { "in" } else { "out" };
                let _ = write!(text, " offload {packet}dev {name} dir {way}");
            }
            _ => {}
        }
    }
    if info.selector.family != 0 {
        text.push_str(" sel");
        selector(&mut text, &info.selector);
    }
    limits(&mut text, &info.lifetime_cfg);
    text
}

fn policy(message: &PolicyMessage, device: &dyn Fn(u32) -> String) -> String {
    let info = &message.user_policy_info;
    let mut text = "ip xfrm policy add".to_owned();
    selector(&mut text, &info.selector);
    let way = match info.direction {
        XFRM_POLICY_IN => "in",
        XFRM_POLICY_OUT => "out",
        _ => "fwd",
    };
    let _ = write!(text, " dir {way} priority {}", info.priority);
    if info.action == XFRM_POLICY_BLOCK {
        text.push_str(" action block");
    }
    attributes(&mut text, &message.nlas);
    for attribute in &message.nlas {
        match attribute {
            XfrmAttrs::OffloadDevice(offload) => {
                let name = device(offload.ifindex.unsigned_abs());
                let _ = write!(text, " offload packet dev {name}");
            }
            XfrmAttrs::Template(templates) => {
                templates.iter().for_each(|template| self::template(&mut text, template));
            }
            _ => {}
        }
    }
    text
}

/// The attributes that states and policies share, and the algorithms.
fn attributes(text: &mut String, attributes: &[XfrmAttrs]) {
    for attribute in attributes {
        match attribute {
            XfrmAttrs::Mark(mark) => {
                let _ = write!(text, " mark 0x{:x} mask 0x{:x}", mark.value, mark.mask);
            }
            XfrmAttrs::MarkVal(value) => {
                let _ = write!(text, " output-mark 0x{value:x}");
            }
            // Comes behind its value.
            XfrmAttrs::MarkMask(mask) => {
                let _ = write!(text, " mask 0x{mask:x}");
            }
            XfrmAttrs::IfId(if_id) => {
                let _ = write!(text, " if_id 0x{if_id:x}");
            }
            XfrmAttrs::EncryptionAlgAead(alg) => {
                algorithm(text, "aead", &alg.alg_name, &alg.alg_key, alg.alg_key_len);
                let _ = write!(text, " {}", alg.alg_icv_len);
            }
            XfrmAttrs::EncryptionAlg(alg) => {
                algorithm(text, "enc", &alg.alg_name, &alg.alg_key, alg.alg_key_len);
            }
            XfrmAttrs::AuthenticationAlgTrunc(alg) => {
                algorithm(text, "auth-trunc", &alg.alg_name, &alg.alg_key, alg.alg_key_len);
                let _ = write!(text, " {}", alg.alg_trunc_len);
            }
            _ => {}
        }
    }
}

fn algorithm(text: &mut String, what: &str, name: &[u8], key: &[u8], bits: u32) {
    let name = String::from_utf8_lossy(name);
    let _ = write!(text, " {what} '{}' ", name.trim_end_matches('\0'));
    match (key, bits / 8) {
        (_, 0) => text.push_str("''"),
        ([], octets) => {
            let _ = write!(text, "'0x<{octets} octets>'");
        }
        (key, _) => {
            text.push_str("0x");
            key.iter().for_each(|octet| _ = write!(text, "{octet:02x}"));
        }
    }
}

fn selector(text: &mut String, selector: &Selector) {
    let Selector { family, prefixlen_s, prefixlen_d, proto, .. } = *selector;
    let (source, destination) =
        (address(&selector.saddr, family), address(&selector.daddr, family));
    let _ = write!(text, " src {source}/{prefixlen_s} dst {destination}/{prefixlen_d}");
    if proto != 0 {
        let _ = match protocol_name(proto) {
            Some(name) => write!(text, " proto {name}"),
            None => write!(text, " proto {proto}"),
        };
    }
    let names = if matches!(proto, 1 | 58) { ["type", "code"] } else { ["sport", "dport"] };
    let ports = [(selector.sport, selector.sport_mask), (selector.dport, selector.dport_mask)];
    for (name, (value, mask)) in names.into_iter().zip(ports) {
        let _ = match mask {
            0 => Ok(()),
            u16::MAX => write!(text, " {name} {value}"),
            // `ip` knows no masks: such a line is not to pass for the policy.
            mask => write!(text, " {name} {value}/0x{mask:04x}"),
        };
    }
}

fn template(text: &mut String, template: &UserTemplate) {
    let (family, source) = (template.family, address(&template.saddr, template.family));
    let destination = address(&template.id.daddr, family);
    let _ =
        write!(text, " tmpl src {source} dst {destination} proto {}", protocol(template.id.proto));
    if template.id.spi != 0 {
        let _ = write!(text, " spi 0x{:08x}", template.id.spi);
    }
    let _ = write!(text, " reqid {} mode {}", template.reqid, mode(template.mode));
}

fn limits(text: &mut String, limits: &LifetimeConfig) {
    for (name, value) in [
        ("byte-soft", limits.soft_byte_limit),
        ("byte-hard", limits.hard_byte_limit),
        ("packet-soft", limits.soft_packet_limit),
        ("packet-hard", limits.hard_packet_limit),
    ] {
        if value != XFRM_INF {
            let _ = write!(text, " limit {name} {value}");
        }
    }
}

fn protocol(number: u8) -> String {
    match number {
        IPPROTO_ESP => "esp".to_owned(),
        IPPROTO_AH => "ah".to_owned(),
        other => other.to_string(),
    }
}

fn mode(mode: u8) -> &'static str {
    if mode == XFRM_MODE_TRANSPORT { "transport" } else { "tunnel" }
}

/// A name that every `ip` knows.
fn protocol_name(number: u8) -> Option<&'static str> {
    match number {
        1 => Some("icmp"),
        6 => Some("tcp"),
        17 => Some("udp"),
        _ => None,
    }
}
