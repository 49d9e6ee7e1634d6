//! Addresses of interfaces.

use super::{Family, Netlink, number};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use std::io;
use std::net::IpAddr;

impl Netlink {
    /// Gives an interface an address, as a network of its own. An address of IPv6 is used at once: nobody else has it.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn add_address(&mut self, index: u32, address: IpAddr) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = number(Family::of(address));
        message.header.prefix_len = if address.is_ipv4() { 32 } else { 128 };
        message.header.index = index;
        if address.is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
        }
        message.attributes =
            vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        self.order(Message::NewAddress(message), NLM_F_CREATE | NLM_F_REPLACE)
    }
}
