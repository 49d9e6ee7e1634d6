//! The policies of both gateways: a file with the algorithms and keys that all tunnels share, and files of tunnels.

use benchkit::policy::{END, head, phase_1, phase_2, preshared_key};
use std::net::Ipv4Addr;

/// The addresses of the gateways, left and right.
const GATEWAYS: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
/// The address behind the left gateway.
pub const LEFT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
/// The addresses behind the right gateway: one for each tunnel, and others for those that come later.
pub const RIGHT_NETWORK: &str = "10.64.0.0/10";
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 0);

/// Files of tunnels.
const PARTS: usize = 100;
/// The phase 1 tunnel of all tunnels with one peer.
const SITE: &str = "site";
const BEGIN: &str = "<?xml version=\"1.0\"?>\n<AIX_VPN Version=\"2.1\">\n";
const KEY: &str = "preshared-key-of-the-bench";

/// The policies of gateways with so many tunnels.
pub struct Policies {
    /// The number of phase 2 tunnels.
    pub tunnels: usize,
    /// Each has a peer, and so a phase 1 tunnel, of its own.
    pub own_peers: bool,
}

/// The tunnels of a file.
pub struct Part {
    number: usize,
    first: usize,
    end: usize,
    own_peers: bool,
    /// So many of its last tunnels are those that change.
    pub changed: usize,
    /// They have another lifetime.
    pub other_lifetime: bool,
    /// They are other tunnels than those of another generation.
    pub generation: usize,
}

impl Policies {
    /// The algorithms, and the phase 1 tunnel of one peer.
    pub fn common(&self, is_left: bool) -> String {
        let mut text = head("31", "ESP_AES128_GCM_16");
        let [here, there] = ends(is_left);
        if !self.own_peers {
            text += &preshared_key(KEY, &format!("<PK_IPV4_Address Value=\"{there}\"/>"));
            let [local, remote] = [here, there].map(|at| format!("<IPV4_Address Value=\"{at}\"/>"));
            text += &phase_1(SITE, &local, &remote);
        }
        // The same with another lifetime.
        let all = head("31", "ESP_AES128_GCM_16");
        let esp = &all[all.find("<IPSecProposal ").expect("it has one")..];
        let other = esp.replace("\"esp\"", "\"esp_other\"").replace("\"p2\"", "\"p2_other\"");
        text += &other.replace("ESP_KeyRefreshMinutes=\"480\"", "ESP_KeyRefreshMinutes=\"470\"");
        text + END
    }

    /// The number of files with tunnels.
    pub fn parts(&self) -> usize {
        PARTS.min(self.tunnels)
    }

    /// A file of tunnels, the same for both ends.
    pub fn part(&self, number: usize) -> Part {
        let share = |part| part * self.tunnels / self.parts();
        Part {
            number,
            first: share(number),
            end: share(number + 1),
            own_peers: self.own_peers,
            changed: 0,
            other_lifetime: false,
            generation: 0,
        }
    }

    /// The name of a phase 2 tunnel.
    pub fn child(&self, number: usize) -> String {
        format!("net{number}")
    }
}

impl Part {
    /// The name of its file.
    pub fn name(&self) -> String {
        format!("part-{:03}.xml", self.number)
    }

    /// The file of one end.
    pub fn text(&self, is_left: bool) -> String {
        let mut text = BEGIN.to_owned();
        for number in self.first..self.end {
            let is_changed = number + self.changed >= self.end;
            text += &self.tunnel(number, is_changed, is_left);
        }
        text + END
    }

    fn tunnel(&self, number: usize, is_changed: bool, is_left: bool) -> String {
        let mut name = format!("net{number}");
        let mut address = u32::try_from(number).expect("a number of a tunnel");
        if is_changed && self.generation > 0 {
            name += &format!("-{}", self.generation);
            // Behind those of all tunnels.
            address += 1 << 21;
        }
        let far = Ipv4Addr::from_bits(RIGHT.to_bits() + address);
        let mut ranges = [[LEFT; 2], [far; 2]];
        if !is_left {
            ranges.reverse();
        }
        let mut text = String::new();
        let site = match self.own_peers {
            true => format!("site{number}"),
            false => SITE.to_owned(),
        };
        if self.own_peers {
            let mut names = ["hub.example".to_owned(), format!("peer{number}.example")];
            if !is_left {
                names.reverse();
            }
            let [here, there] = names;
            text += &preshared_key(KEY, &format!("<PK_FQDN Value=\"{there}\"/>"));
            let identity = |(name, at): (&str, Ipv4Addr)| {
                format!("<FQDN Value=\"{name}\"><IPV4_Address Value=\"{at}\"/></FQDN>")
            };
            let [local, remote] = ends(is_left);
            let sides = [(&*here, local), (&*there, remote)].map(identity);
            text += &phase_1(&site, &sides[0], &sides[1]);
        }
        let child = phase_2(&name, &site, ranges);
        text += &match is_changed && self.other_lifetime {
            true => child.replace("\"p2\"", "\"p2_other\""),
            false => child,
        };
        text
    }
}

/// This gateway's address, and the other one's.
fn ends(is_left: bool) -> [Ipv4Addr; 2] {
    let [left, right] = GATEWAYS;
    if is_left { [left, right] } else { [right, left] }
}
