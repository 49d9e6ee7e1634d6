//! With and without what the kernel offers for many packets at once.

use crate::network::{Gateway, Network, PATIENCE, ping, tcp_echo, udp, udp_echo};
use crate::schedules::working;
use crate::{Agreement, Side, TUNNEL, connect, setup, silent};
use esp::plane::DataPlane;
use floor::KernelOffload;
use std::collections::BTreeSet;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::Instant;
use testkit::until;
use userspace::workers::Workers;
use userspace::{Flow, Stage};

/// Octets of the longest frame of Ethernet.
const FRAME: usize = 1514;

fn flow(workers: &Workers, stage: Stage) -> Flow {
    let report = workers.report();
    report.stages.iter().find(|s| s.stage == stage).expect("every stage").flow
}

/// Each side does without something else, and what one leaves alone the other may use.
#[test]
fn everything_passes_without_what_the_kernel_offers() {
    use KernelOffload::{DeviceOffload, UdpGro, UdpSegmentation};
    let Some(network) = Network::make() else { return };
    let (a, b) = TUNNEL.ends(Side::A);
    let [ns_a, ns_b] = [network.space(0), network.space(1)];
    let all = &KernelOffload::ALL[..];
    for without in [
        [&[DeviceOffload][..], &[]],
        [&[UdpSegmentation], &[UdpGro]],
        [&[UdpGro], &[DeviceOffload, UdpSegmentation]],
        [all, all],
    ] {
        let workers = [Workers::default(), Workers::default()];
        let gateways = [Side::A, Side::B].map(|side| {
            let side_is = side as usize;
            let mut setup = setup(network.state_dir(side_is));
            setup.floor.settings.without = BTreeSet::from_iter(without[side_is].iter().copied());
            setup.plane.workers = workers[side_is].clone();
            let gateway = Gateway::start(network.space(side_is), setup, silent());
            gateway.with(move |plane| plane.add_rule(TUNNEL.rule(side)).expect("a rule"));
            gateway
        });
        connect(&gateways, TUNNEL);
        let mut capture = network.capture();
        ping(ns_a, a, b);
        udp_echo((ns_a, a), (ns_b, b), &[35, 1200, 3000]);
        tcp_echo((ns_a, a), (ns_b, b), 300_000);

        let seen = capture.finish();
        assert_eq!(seen.in_the_clear, Vec::<String>::new(), "{without:?}");
        let segments = without.iter().all(|w| w.contains(&UdpSegmentation));
        assert_eq!(seen.longest <= FRAME, segments, "{without:?}: {} octets", seen.longest);
        for (side, workers) in workers.iter().enumerate() {
            let read = || flow(workers, Stage::Read);
            let exchange_is_large = || {
                let before = read();
                tcp_echo((ns_a, a), (ns_b, b), 300_000);
                let (octets, packets) =
                    (read().octets - before.octets, read().packets - before.packets);
                (octets > packets * 1500).then_some(())
            };
            if without[side].contains(&DeviceOffload) {
                assert!(read().octets <= read().packets * 1500, "{without:?} {:?}", read());
            } else {
                // On a busy host, the acknowledgements of an exchange may be many.
                until("packets of several segments", exchange_is_large, || format!("{:?}", read()));
            }
        }
        for gateway in &gateways {
            let counters = gateway.with(|plane| plane.counters());
            let lost: Vec<_> = counters.into_iter().filter(|(_, n)| *n > 0).collect();
            assert!(lost.is_empty(), "{without:?}: {lost:?}");
        }
    }
}

/// Has the kernel cut what is sent into datagrams of so many octets.
pub fn cut_into(socket: &UdpSocket, octets: libc::c_int) {
    let (value, len) = ((&raw const octets).cast(), size_of_val(&octets) as libc::socklen_t);
    // SAFETY: the pointer and the length describe `octets`, which outlives the call.
    let outcome = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, value, len)
    };
    assert_eq!(outcome, 0, "{}", io::Error::last_os_error());
}

/// Datagrams that were sent at once stay together: one packet from the device, one to the device.
#[test]
fn udp_crosses_the_device_in_super_packets() {
    const DATAGRAMS: usize = 30;
    const OCTETS: usize = 1000;
    for inner_v6 in [false, true] {
        let Some(network) = Network::make() else { return };
        let form = Agreement { inner_v6, ..TUNNEL };
        let (_gateways, workers) = working(&network, form);
        let (from, to) = form.ends(Side::A);
        let sender = udp(network.space(0), from);
        let receiver = udp(network.space(1), to);
        cut_into(&sender, OCTETS as libc::c_int);
        let sent: Vec<u8> = (0..DATAGRAMS * OCTETS).map(|n| (n / 7 + n / OCTETS) as u8).collect();
        let before = [flow(&workers[0], Stage::Read), flow(&workers[1], Stage::Write)];
        sender.send_to(&sent, receiver.local_addr().expect("bound")).expect("sent");

        let mut received: Vec<u8> = Vec::new();
        let mut buffer = [0; 2 * OCTETS];
        for _ in 0..DATAGRAMS {
            let octets = receiver.recv(&mut buffer).expect("every datagram comes");
            assert_eq!(octets, OCTETS);
            received.extend(&buffer[..octets]);
        }
        assert!(received == sent, "in order and whole");
        // They have arrived, but may not have been counted.
        let patience = Instant::now() + PATIENCE;
        let passed = loop {
            let now = [flow(&workers[0], Stage::Read), flow(&workers[1], Stage::Write)];
            let passed = [0, 1].map(|n| now[n].octets - before[n].octets);
            if passed.iter().all(|octets| *octets >= sent.len() as u64) {
                break [0, 1].map(|n| now[n].packets - before[n].packets);
            }
            assert!(Instant::now() < patience, "{passed:?} octets are counted");
            std::thread::yield_now();
        };
        assert!(passed.iter().all(|packets| *packets <= 3), "{passed:?} packets");
    }
}
