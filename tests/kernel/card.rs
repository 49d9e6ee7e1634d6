//! The simulated card (`guest/xfrmsim`): two devices on one wire that protect packets themselves.

use std::fs;
use std::process::Command;
use testkit::space::Space;
use testkit::until;

/// Where the driver tells what it does, and takes that the card is pulled (`0`) and put back (`1`).
const CONTROL: &str = "/sys/kernel/debug/xfrmsim";

/// Puts a device of the card into each of two namespaces, as `wire` with these addresses.
pub fn connect(left: (&Space, &[&str]), right: (&Space, &[&str])) {
    if fs::metadata(CONTROL).is_err() {
        let kernel = std::env::var("KERNEL").expect("the guest tells where its kernel is from");
        let loaded = Command::new("insmod").arg(format!("{kernel}/xfrmsim.ko")).status();
        assert!(loaded.expect("insmod is installed").success(), "the card's driver does not load");
    } else {
        // Those of a scenario before may still be on their way out of its namespaces.
        fs::write(CONTROL, "0").expect("we are root");
        fs::write(CONTROL, "1").expect("we are root");
    }
    // A scenario that failed may have left less.
    make_room_for(ROOM);
    for ((space, addresses), device) in [(left, "xs0"), (right, "xs1")] {
        let namespace = space
            .run(|| format!("/proc/{}/task/{}/ns/net", std::process::id(), nix::unistd::gettid()));
        let moved = Command::new("ip")
            .args(["link", "set", device, "name", "wire", "netns", &namespace])
            .status();
        assert!(moved.expect("ip is installed").success(), "{device} does not move");
        for address in addresses {
            let nodad = if address.contains(':') { " nodad" } else { "" };
            space.ip(&format!("address add {address} dev wire{nodad}"));
        }
        space.ip("link set wire up");
    }
    for (space, _) in [left, right] {
        let up = || space.ip("link show wire").contains("LOWER_UP").then_some(());
        until("a carrier", up, || space.ip("link"));
    }
}

/// The driver's counters: a line for each SA and policy that it has.
pub fn counters() -> String {
    fs::read_to_string(CONTROL).expect("the card's driver is loaded")
}

/// Takes both devices of the card out.
pub fn pull() {
    fs::write(CONTROL, "0").expect("we are root");
}

/// For how many SAs of either direction the card has room, unless told otherwise.
pub const ROOM: usize = 1024;

/// Has the card take so many SAs of either direction, and no more.
pub fn make_room_for(sas: usize) {
    fs::write("/sys/module/xfrmsim/parameters/capacity", sas.to_string()).expect("we are root");
}
