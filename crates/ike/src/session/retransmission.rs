//! Requests that the peer does not answer, and the answer to its last one.

use super::Session;
use crate::close_reason::CloseReason;
use crate::context::Context;
use crate::event::Step;
use crate::sa::attempt::Attempt;
use crate::sa::window::Retransmission;
use crate::sa::{IkeSa, State};
use crate::wire::header::IkeSpi;
use std::time::Duration;

impl Session {
    /// Sends again what is due and not answered. Returns the IKE SAs, by local SPI, whose requests are given up.
    pub fn send_again(&mut self, cx: &mut Context<'_>) -> Vec<IkeSpi> {
        let mut given_up = Vec::new();
        let others: Vec<_> = self
            .each_sa()
            .map(|sa| {
                let retransmissions = sa.window.retransmissions();
                self.other_paths(cx.addresses, cx.config.natt_port, retransmissions)
            })
            .collect();
        let in_use = self.sas.iter_mut().map(|sa| sa as &mut IkeSa<dyn State>);
        let each = self.attempt.iter_mut().map(Attempt::sa_mut).chain(in_use);
        for (sa, others) in each.zip(others) {
            let IkeSa { window, state, .. } = sa;
            let path = &mut self.path;
            let rng = &mut *cx.rng;
            let due = window.retransmit(cx.now, cx.config, |message| {
                let (size, message) = message.smaller(state.keys_if_any()?, path, rng)?;
                path.fragment_size = Some(size);
                Some(message)
            });
            match due {
                Retransmission::NotDue => {}
                Retransmission::Send(datagrams) => {
                    cx.out.transmit_all(self.path.local, self.path.remote, datagrams);
                    for (local, remote) in others {
                        cx.out.transmit_all(local, remote, datagrams);
                    }
                    cx.out.exchange(&self.tunnel.name, || sa.told(Step::Repeated));
                }
                Retransmission::GiveUp => given_up.push(sa.local_spi),
            }
        }
        given_up
    }

    /// The time for which the answer to a Delete of an IKE SA waits. Many peers forget the Child SAs with the answer:
    /// the packets that were admitted on them are to arrive before it.
    pub fn pause_before_final_answer(&self, cx: &Context<'_>) -> Duration {
        let by_choice = matches!(self.deleted, Some((_, CloseReason::DeletedByPeer)));
        let ends = by_choice && self.sas.len() == 1 && !self.children.is_empty();
        if ends { cx.config.drain_before_answer } else { Duration::ZERO }
    }
}
