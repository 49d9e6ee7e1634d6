//! The abilities of this kernel's XFRM.

#![forbid(unsafe_code)]

use super::netlink::{Kernel, Netlink};
use super::ownership::REQIDS;
use super::state::Form;
use crypto::Suite;
use esp::plane::{Encapsulation, Limits, Path, Spi};
use netlink_packet_xfrm::XfrmMessage;
use policy::{Binding, Mode, Secret};
use std::io;

/// The result of the probe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ability {
    /// Suites that it takes.
    pub suites: Vec<Suite>,
    /// Those that it does not, with its reason.
    pub missing: Vec<(Suite, String)>,
}

/// Tries suites: an SA of each is added in the calling thread's network namespace and removed at once. Between
/// addresses that no packet has.
///
/// # Errors
/// Where the kernel has no XFRM, or CAP_NET_ADMIN is missing.
pub fn probe(suites: &[Suite]) -> io::Result<Ability> {
    Ok(probe_on(&mut Netlink::open()?, suites))
}

pub(super) fn probe_on(kernel: &mut dyn Kernel, suites: &[Suite]) -> Ability {
    let mut ability = Ability::default();
    for suite in suites {
        match attempt(kernel, *suite) {
            Ok(()) => ability.suites.push(*suite),
            Err(why) => ability.missing.push((*suite, why)),
        }
    }
    ability
}

fn attempt(kernel: &mut dyn Kernel, suite: Suite) -> Result<(), String> {
    let path = Path {
        // Documentation's addresses (RFC 5737).
        local: ([192, 0, 2, 1], 0).into(),
        remote: ([192, 0, 2, 2], 0).into(),
        encapsulation: if suite.is_ah() { Encapsulation::Ah } else { Encapsulation::Native },
    };
    let form = Form {
        inbound: true,
        spi: Spi(0x7670_6e64),
        suite,
        esn: false,
        replay_window: 32,
        mode: Mode::Tunnel,
        path,
        flow: None,
        limits: Limits::default(),
        base: 0,
        allowed: None,
        reqid: *REQIDS.end(),
        binding: Binding::default(),
        offload: None,
    };
    let key = Secret::new(vec![0x5a; suite.key_material_len()]);
    let added = match kernel.order(addition(&form, &key)?) {
        // Of a probe that was interrupted.
        Err(error) if error.is_present() => {
            let again = addition(&form, &key)?;
            kernel.order(deletion(&form)).and_then(|()| kernel.order(again))
        }
        outcome => outcome,
    };
    added.map_err(|error| error.to_string())?;
    // The kernel takes the suite, whatever it says now. An SA that is left is removed by the next probe, or with the
    // other leftovers.
    if let Err(error) = kernel.order(deletion(&form)) {
        tracing::debug!(%error, "an SA of the probe is left");
    }
    Ok(())
}

fn addition(form: &Form, key: &Secret) -> Result<XfrmMessage, String> {
    form.message(key, None).map(XfrmMessage::AddSa).map_err(|error| error.to_string())
}

fn deletion(form: &Form) -> XfrmMessage {
    XfrmMessage::DeleteSa(form.name().message(&form.binding))
}
