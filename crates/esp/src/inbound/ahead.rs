//! Opening ahead: any thread opens packets before their turn, and they are settled together when their turn has come.

#![forbid(unsafe_code)]

use super::Inbound;
use crate::discard::Discard;
use crate::plane::Notice;
use crate::queue::ReceiveQueue;
use crate::sa::Arrival;
use std::time::Duration;

/// A packet that was opened before its turn.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ahead {
    /// The packet is not authentic.
    Refused(Discard),
    /// The packet is authentic. `outcome` is the length of the inner packet, or the reason why there is none.
    Authentic { sequence: u64, outcome: Result<usize, Discard> },
}

impl Inbound {
    /// Opens packets that came together, before it is their turn, and appends the inner packets to `queue`. It decides
    /// nothing: a sequence number may still be used by a packet that comes before.
    pub(crate) fn open_ahead<'d>(
        &self,
        datagrams: impl Iterator<Item = &'d [u8]> + Clone,
        arrival: &Arrival,
        queue: &mut ReceiveQueue,
        opened: &mut Vec<(Ahead, Arrival)>,
    ) {
        let first = opened.len();
        {
            let state = self.state();
            opened.extend(datagrams.clone().map(|datagram| {
                let ahead = match self.expect(&state, datagram) {
                    // Until it is opened.
                    Ok(sequence) => Ahead::Authentic { sequence, outcome: Err(Discard::Forged) },
                    Err(discard) => Ahead::Refused(discard),
                };
                (ahead, *arrival)
            }));
        }
        let mut vetted = None;
        for (datagram, (ahead, _)) in datagrams.zip(&mut opened[first..]) {
            let Ahead::Authentic { sequence, outcome } = ahead else { continue };
            let (space, header_len) = self.begin(datagram, arrival, queue);
            match self.unseal(*sequence, datagram, &mut space[header_len..]) {
                Ok(len) => match self.unwrap(space, header_len, len, arrival, &mut vetted) {
                    Ok(header) => {
                        *outcome = Ok(header.len);
                        queue.accept(&header);
                    }
                    Err(discard) => {
                        *outcome = Err(discard);
                        queue.abandon();
                    }
                },
                Err(discard) => {
                    *ahead = Ahead::Refused(discard);
                    queue.abandon();
                }
            }
        }
    }

    /// Commits packets that were opened ahead, if all their numbers are new, no limit is met, and the SA is still
    /// there. Otherwise it returns `false` and changes nothing: the packets have to be opened again in their order.
    /// `numbers` is scratch space.
    pub(crate) fn settle(
        &self,
        now: Duration,
        opened: &[(Ahead, Arrival)],
        numbers: &mut Vec<u64>,
        count: &dyn Fn(Discard),
        notify: &dyn Fn(Notice),
    ) -> bool {
        let mut receiving = self.receive();
        let mut octets = 0;
        numbers.clear();
        for (ahead, _) in opened {
            let Ahead::Authentic { sequence, outcome } = ahead else { continue };
            numbers.push(*sequence);
            octets += outcome.unwrap_or(0) as u64;
        }
        let refuses = receiving.state.refuses.is_some();
        if refuses
            || !receiving.state.window.takes(numbers)
            || self.limits.hard_bytes.is_some_and(|hard| receiving.state.bytes + octets >= hard)
        {
            return false;
        }
        for (ahead, arrival) in opened {
            let outcome = match ahead {
                Ahead::Refused(discard) => Err(*discard),
                Ahead::Authentic { sequence, outcome } => {
                    receiving.take_note(now, *sequence, arrival);
                    outcome.and_then(|octets| receiving.account(now, octets as u64))
                }
            };
            if let Err(discard) = outcome {
                self.refuse(discard);
                count(discard);
            }
        }
        receiving.finish(notify);
        true
    }
}
