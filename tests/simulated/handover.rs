//! When the gateway begins to send on a Child SA that it has made in place of another one.

use crate::calm;
use crate::puppet::{CHILD_SPI, Puppet};
use esp::plane::Spi;
use ike::negotiation::proposal::{Offered, offer_child};
use ike::wire::payload::Payload;
use ike::wire::registry::PayloadType;
use sim::Site;
use std::time::Duration;

/// The answer to a rekey, with this SPI of the puppet.
fn granted(puppet: &Puppet, asked: Vec<Payload>, spi: Spi) -> Vec<Payload> {
    let mut answer = vec![Payload::Sa(offer_child(&puppet.site.esp, Offered::default(), spi))];
    let wanted = [PayloadType::NONCE, PayloadType::TSI, PayloadType::TSR];
    answer.extend(asked.into_iter().filter(|p| wanted.contains(&p.kind())));
    answer
}

/// A puppet with this Vendor ID, which the gateway has asked to renew the Child SA.
fn renewed_with(vendor_id: &[u8], new: Spi) -> Puppet {
    let mut puppet = Puppet::new(&Site::default(), calm());
    puppet.introduction = vec![Payload::VendorId(vendor_id.to_vec())];
    puppet.pick_up();
    let (request, _) = puppet.next_request();
    let payloads = puppet.auth_payloads();
    puppet.answer(&request, &payloads);
    assert_eq!(puppet.sending(), [CHILD_SPI]);
    assert!(puppet.world.rekey(puppet.left, "net0"));
    puppet.world.run_for(Duration::from_millis(50));
    let (request, payloads) = puppet.next_request();
    let answer = granted(&puppet, payloads, new);
    puppet.answer(&request, &answer);
    puppet
}

#[test]
fn a_peer_that_answers_before_it_can_receive_gets_nothing_before_its_next_answer() {
    let new = Spi(0x7000_0002);
    let mut puppet = renewed_with(b"OpenIKED-7.4", new);
    let (request, payloads) = puppet.next_request();
    assert_eq!((payloads.as_slice(), puppet.sending()), (&[][..], vec![CHILD_SPI]));
    puppet.answer(&request, &[]);
    assert_eq!(puppet.sending().last(), Some(&new), "before the peer deletes the old one");
    let (request, _) = puppet.next_delete();
    puppet.answer(&request, &[]);
    assert_eq!((puppet.child_sas(), puppet.sending()), (1, vec![new]));
}

#[test]
fn any_other_peer_gets_packets_on_the_new_child_sa_at_once() {
    let new = Spi(0x7000_0002);
    let mut puppet = renewed_with(b"OE-Libreswan-5.2", new);
    assert_eq!(puppet.sending().last(), Some(&new));
    let (request, _) = puppet.next_delete();
    puppet.answer(&request, &[]);
    assert_eq!((puppet.child_sas(), puppet.sending()), (1, vec![new]));
}
