//! smoltcp alone: why each correction is needed. A test that fails here says that smoltcp does better by itself, and
//! which correction can go.

use super::segment::{ACK, PSH, RST, SYN, Segment};
use crate::outlet::{Outlet, Port};
use crate::packet::parse;
use esp::datapath::{self, Datapath};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State};
use smoltcp::time::{Duration as StackDuration, Instant as StackInstant};
use smoltcp::wire::{HardwareAddress, checksum};
use std::time::Instant;

const LOCAL: [u8; 4] = [10, 1, 0, 1];
const REMOTE: [u8; 4] = [10, 2, 0, 7];
/// Octets of the receive buffer, and of the window.
const WINDOW: u16 = 50_000;
/// The number of the peer's first octet.
const THEIRS: u32 = 1001;

/// An established connection of smoltcp.
struct Alone {
    interface: Interface,
    outlet: Outlet,
    set: SocketSet<'static>,
    handle: SocketHandle,
    now: StackInstant,
    /// The number of this end's first octet.
    ours: u32,
}

/// A segment of the peer.
fn segment(seq: u32, ack: u32, flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let len = (20 + 20 + options.len() + payload.len()) as u16;
    let mut packet = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, 6, 0, 0];
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet.extend([REMOTE, LOCAL].concat());
    let sum = !checksum::data(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend([1025_u16.to_be_bytes(), 80_u16.to_be_bytes()].concat());
    packet.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
    packet.extend([((20 + options.len()) as u8 / 4) << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
    packet.extend([options, payload].concat());
    packet
}

impl Alone {
    /// `mss`: octets of the longest segment that the peer takes.
    fn established(mss: u16) -> Self {
        let begun = Instant::now();
        let datapath = Datapath::new(datapath::Settings::default(), begun);
        let mut outlet = Outlet::new(&datapath, begun);
        let now = StackInstant::from_secs(1);
        let config = Config::new(HardwareAddress::Ip);
        let port = &mut Port { incoming: None, outlet: &mut outlet, corrections: None };
        let mut interface = Interface::new(config, port, now);
        interface.set_any_ip(true);
        let [received, sent] =
            [WINDOW.into(), 100_000].map(|octets| SocketBuffer::new(vec![0; octets]));
        let mut socket = Socket::new(received, sent);
        socket.set_congestion_control(CongestionControl::Cubic);
        socket.listen(80).expect("a port");
        let mut set = SocketSet::new(Vec::new());
        let handle = set.add(socket);
        let mut alone = Self { interface, outlet, set, handle, now, ours: 0 };
        let options = [&[2, 4][..], &mss.to_be_bytes()].concat();
        alone.gives(&segment(THEIRS - 1, 0, SYN, &options, b""));
        let answer = alone.sends().expect("an answer to the SYN");
        alone.ours = read(&answer).end();
        alone.acknowledges(0);
        assert_eq!(alone.socket().state(), State::Established);
        alone
    }

    fn socket(&mut self) -> &mut Socket<'static> {
        self.set.get_mut(self.handle)
    }

    /// Gives smoltcp a packet. Returns its answer.
    fn gives(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let incoming = Some(packet);
        let port = &mut Port { incoming, outlet: &mut self.outlet, corrections: None };
        self.interface.poll_ingress_single(self.now, port, &mut self.set);
        self.outlet.take_last()
    }

    /// Has the peer acknowledge so many octets, all together.
    fn acknowledges(&mut self, octets: u32) -> Option<Vec<u8>> {
        self.gives(&segment(THEIRS, self.ours.wrapping_add(octets), ACK, &[], b""))
    }

    /// Has smoltcp send a packet, if it wants to.
    fn sends(&mut self) -> Option<Vec<u8>> {
        let port = &mut Port { incoming: None, outlet: &mut self.outlet, corrections: None };
        self.interface.poll_egress(self.now, port, &mut self.set);
        self.outlet.take_last()
    }

    fn puts(&mut self, octets: usize) {
        assert_eq!(self.socket().send_slice(&vec![7; octets]), Ok(octets));
    }

    /// Octets of payload that leave now.
    fn payload(&mut self) -> Option<u32> {
        self.sends().map(|packet| read(&packet).payload.expect("a whole segment"))
    }
}

fn read(packet: &[u8]) -> Segment<'_> {
    Segment::read(parse(packet).expect("a packet").upper(packet))
}

#[test]
fn smoltcp_takes_any_reset_within_the_window() {
    let mut alone = Alone::established(1200);
    alone.gives(&segment(THEIRS + u32::from(WINDOW) - 1, 0, RST, &[], b""));
    assert_eq!(alone.socket().state(), State::Closed, "`challenge` can go");
}

#[test]
fn smoltcp_does_not_look_at_acknowledgments_just_outside_the_window() {
    for number in [THEIRS - 1, THEIRS + u32::from(WINDOW)] {
        let mut alone = Alone::established(1200);
        alone.puts(1000);
        assert_eq!(alone.payload(), Some(1000));
        let ack = alone.ours.wrapping_add(1000);
        alone.gives(&segment(number, ack, ACK, &[], b""));
        assert_eq!(alone.socket().send_queue(), 1000, "`renumbers` can go");
    }
}

#[test]
fn smoltcp_takes_an_acknowledgment_of_many_segments_for_one() {
    let mut alone = Alone::established(100);
    alone.puts(50_000);
    let window = alone.payload().expect("as much as the congestion window");
    assert!(window >= 20 * 100, "{window}");
    alone.acknowledges(window);
    assert_eq!(alone.payload(), Some(window + 100), "`pieces` can go");
}

#[test]
fn smoltcp_acknowledges_with_an_old_number_while_it_sends_again() {
    let mut alone = Alone::established(1000);
    alone.puts(2000);
    assert_eq!(alone.payload(), Some(2000));
    alone.now += StackDuration::from_secs(1);
    assert_eq!(alone.payload(), Some(1000), "it sends again");
    let early = segment(THEIRS + 1, alone.ours, ACK | PSH, &[], b"x");
    let answer = alone.gives(&early).expect("an acknowledgment");
    let old = alone.ours.wrapping_add(1000);
    assert_eq!(read(&answer).seq, old, "the number that `leaving` writes can go");
}

#[test]
fn smoltcp_waits_for_a_second_before_it_sends_again() {
    let mut alone = Alone::established(1000);
    alone.puts(1000);
    assert_eq!(alone.payload(), Some(1000));
    alone.acknowledges(1000);
    alone.puts(1000);
    assert_eq!(alone.payload(), Some(1000));
    // The round trip was none.
    alone.now += StackDuration::from_millis(999);
    assert_eq!(alone.payload(), None, "the clock that is ahead can go");
    alone.now += StackDuration::from_millis(1);
    assert_eq!(alone.payload(), Some(1000));
}

#[test]
fn smoltcp_ends_an_idle_stream_that_has_a_time_limit() {
    let mut alone = Alone::established(1000);
    alone.socket().set_timeout(Some(StackDuration::from_secs(10)));
    alone.now += StackDuration::from_secs(11);
    alone.sends();
    assert_eq!(alone.socket().state(), State::Closed, "`deadline` can go");
}

#[test]
fn smoltcp_holds_back_the_end_of_a_long_queue() {
    let mut alone = Alone::established(1200);
    alone.puts(2100);
    let sent = alone.payload().expect("as much as the congestion window");
    assert!((2100 - 1200..2100).contains(&sent), "{sent}");
    // The queue is longer than a segment, and the congestion window has room for the last octets.
    alone.acknowledges(500);
    assert_eq!(alone.payload(), None, "`delays` can go");
    alone.socket().set_nagle_enabled(false);
    assert_eq!(alone.payload(), Some(2100 - sent));
}
