//! SAs in the kernel: one is given to it, and read back.

#![forbid(unsafe_code)]

use super::algorithm;
use super::netlink::{self, Kernel, Refused, refusal};
use super::state::{self, Form, Name};
use esp::plane::PlaneError;
use netlink_packet_xfrm::state::ModifyMessage;
use netlink_packet_xfrm::{XfrmAttrs, XfrmMessage};
use policy::{Binding, Secret};

/// Gives the kernel an SA, in the place of a note that a packet has asked for it (a larval SA). Any other SA with the
/// same SPI is an error.
pub(super) fn give(
    kernel: &mut dyn Kernel,
    (form, key): (&Form, &Secret),
    replay: &XfrmAttrs,
    what: &str,
) -> Result<(), PlaneError> {
    let refused = |e| refusal(format!("{what} SA {}", form.spi), &e);
    match kernel.order(XfrmMessage::AddSa(form.message(key, Some(replay.clone()))?)) {
        Err(error) if error.errno == libc::EEXIST => {
            let name = form.name().message(&form.binding);
            let mut there = kernel.ask(XfrmMessage::GetSa(name)).map_err(refused)?;
            netlink::wipe(&mut there);
            match there {
                XfrmMessage::AddSa(state) if state::is_larval(&state) => {
                    let update = form.message(key, Some(replay.clone()))?;
                    kernel.order(XfrmMessage::UpdateSa(update)).map_err(refused)
                }
                _ => Err(refused(error)),
            }
        }
        outcome => outcome.map_err(refused),
    }
}

/// An SA as the kernel has it, without its keys.
pub(super) fn read(
    kernel: &mut dyn Kernel,
    name: &Name,
    binding: &Binding,
) -> Result<Option<ModifyMessage>, Refused> {
    match kernel.ask(XfrmMessage::GetSa(name.message(binding))) {
        Ok(XfrmMessage::AddSa(mut state) | XfrmMessage::UpdateSa(mut state)) => {
            algorithm::wipe(&mut state.nlas);
            if state::is_larval(&state) {
                // Nor may it stand in the way of the SA.
                kernel.order(XfrmMessage::DeleteSa(name.message(binding)))?;
                return Ok(None);
            }
            Ok(Some(state))
        }
        Ok(_) => Ok(None),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error),
    }
}
