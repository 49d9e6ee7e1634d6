//! Reading the answer to a request of ours.

use super::path::Path;
use super::reassembly::{Body, Fragments, Received};
use super::{IkeSa, Keyed};
use crate::context::Context;
use crate::datagram::Datagram;
use crate::discard::Discard;
use crate::event::Step;
use crate::wire::header::Header;
use crate::wire::reader::WireError;
use policy::IkeTunnel;

/// An answer to a request of ours.
pub(crate) struct Answered {
    pub body: Result<Body, WireError>,
    pub fragments: Option<Fragments>,
    /// The number of times that the request had been sent again.
    pub retransmissions: u32,
}

impl<S: Keyed> IkeSa<S> {
    /// Reads the answer to the request of ours that is in flight. `None`: the datagram is ignored, or one of several
    /// fragments.
    pub fn read_answer(
        &mut self,
        cx: &mut Context<'_>,
        tunnel: &IkeTunnel,
        path: &Path,
        header: &Header,
        datagram: Datagram<'_>,
    ) -> Option<Answered> {
        if !self.window.awaits(header.message_id) {
            cx.out.discard(Discard::UnexpectedResponse);
            return None;
        }
        let answers = &mut self.window.answers;
        let received = answers.receive(cx.now, path, self.state.keys(), header, datagram.octets);
        let (body, fragments) = match received {
            Err(reason) => {
                cx.out.discard(reason);
                return None;
            }
            Ok(Received::Fragment) => return None,
            Ok(Received::Message { body, fragments }) => (body, fragments),
        };
        if body.is_ok() {
            if header.exchange != self.state.exchange() {
                cx.out.discard(Discard::WrongExchange);
                return None;
            }
            if let (Some(active), Some(since)) = (self.state.active(), self.window.waits_since()) {
                let duration = cx.now.saturating_duration_since(since);
                cx.out.durations.note(active.measured_as(), duration);
            }
        }
        let retransmissions = self.window.retransmissions();
        cx.out.exchange(&tunnel.name, || self.told(Step::Answered));
        self.window.concluded();
        Some(Answered { body, fragments, retransmissions })
    }
}
