//! Limits on the cost of strangers: half-open IKE SAs are counted, cookies demanded (RFC 7296 §2.6).

mod frozen;

use crate::config::Config;
use crate::crypto::prf::{self, prf};
use crate::crypto::rng::Rng;
use crate::datagram::Datagram;
use crate::wire::header::IkeSpi;
use ::crypto::Provider;
use policy::{Prf, Secret};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;

/// The time for which a half-open IKE SA waits for IKE_AUTH.
pub(crate) const HALF_OPEN_FOR: Duration = Duration::from_secs(30);

/// The same from IKE_SA_INIT on, with exchanges of IKE_INTERMEDIATE in between.
pub(crate) const HALF_OPEN_AT_MOST: Duration = Duration::from_secs(60);

/// The time for which a cookie secret makes cookies. They are accepted for the same time after that.
const SECRET_FOR: Duration = Duration::from_secs(60);

/// Beyond the cookie threshold, one origin may have one in so many of all places of half-open IKE SAs.
const ORIGINS: usize = 16;

/// One in so many of the places above the cookie threshold is kept for peers whose address the policy names.
const RESERVED: usize = 4;

/// The decision about a request of a stranger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Go on.
    Welcome,
    /// Ask for this cookie first.
    Cookie(Vec<u8>),
    /// Too many already.
    Full,
}

/// The cookie secrets, and the half-open IKE SAs by where they come from.
pub(crate) struct Admissions {
    /// The present one and the one before.
    secrets: [Secret; 2],
    version: u8,
    renew_at: Option<Instant>,
    half_open: usize,
    /// Those of them from addresses that the policy does not name.
    unnamed: usize,
    origins: HashMap<Origin, usize>,
    /// Until when work that left nothing counts as one of them, and for whom; the earliest first.
    wasted: VecDeque<(Instant, Origin)>,
}

impl Admissions {
    pub fn new(rng: &mut Rng) -> Self {
        Self {
            secrets: [random(rng), random(rng)],
            version: 0,
            renew_at: None,
            half_open: 0,
            unnamed: 0,
            origins: HashMap::new(),
            wasted: VecDeque::new(),
        }
    }

    /// A half-open IKE SA is there.
    pub fn enter(&mut self, origin: Origin) {
        self.half_open += 1;
        self.unnamed += usize::from(!origin.is_named());
        *self.origins.entry(origin).or_default() += 1;
    }

    /// A half-open IKE SA is gone, or is none any more.
    pub fn leave(&mut self, origin: Origin) {
        self.half_open -= 1;
        self.unnamed -= usize::from(!origin.is_named());
        if let Entry::Occupied(mut count) = self.origins.entry(origin) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// A request has cost a key and left no half-open IKE SA. It counts for as long as one: otherwise a flood of such
    /// requests would never be asked for a cookie.
    pub fn waste(&mut self, now: Instant, origin: Origin) {
        self.enter(origin);
        self.wasted.push_back((now + HALF_OPEN_FOR, origin));
    }

    fn forget_wasted(&mut self, now: Instant) {
        while let Some((_, origin)) = self.wasted.front().filter(|(until, _)| *until <= now) {
            let origin = *origin;
            self.wasted.pop_front();
            self.leave(origin);
        }
    }

    /// Judges an IKE_SA_INIT request. `cookie` is what it came with.
    pub fn judge(
        &mut self,
        now: Instant,
        config: &Config,
        rng: &mut Rng,
        request: Request<'_>,
    ) -> Admission {
        self.forget_wasted(now);
        let limit = config.half_open_limit;
        // An attacker can have many addresses, and return the cookie from each of them.
        let reserved = limit.saturating_sub(config.cookie_threshold) / RESERVED;
        let crowded = !request.origin.is_named() && self.unnamed >= limit - reserved;
        if self.half_open >= limit || crowded {
            return Admission::Full;
        }
        if self.half_open < config.cookie_threshold {
            return Admission::Welcome;
        }
        // Requests without a cookie may have been sent by others in the name of this origin.
        let share = (limit / ORIGINS).max(1);
        let held = self.origins.get(&request.origin).copied().unwrap_or(0);
        if held >= config.cookie_threshold + share {
            return Admission::Full;
        }
        self.renew(now, rng);
        let by = prf::provider(&config.crypto, Prf::HmacSha2_256);
        let versions = [(0, self.version), (1, self.version.wrapping_sub(1))];
        let is_ours = request.cookie.is_some_and(|cookie| {
            versions.iter().any(|(index, version)| {
                bool::from(self.cookie(by, *index, *version, request).as_slice().ct_eq(cookie))
            })
        });
        if is_ours {
            Admission::Welcome
        } else {
            Admission::Cookie(self.cookie(by, 0, self.version, request))
        }
    }

    fn renew(&mut self, now: Instant, rng: &mut Rng) {
        match self.renew_at {
            Some(at) if now < at => {}
            _ => {
                self.secrets.swap(0, 1);
                self.secrets[0] = random(rng);
                self.version = self.version.wrapping_add(1);
                self.renew_at = Some(now + SECRET_FOR);
            }
        }
    }

    /// Version | MAC(secret, Ni | IPi | port | SPIi), as RFC 7296 §2.6 suggests.
    fn cookie(&self, by: Provider, secret: usize, version: u8, request: Request<'_>) -> Vec<u8> {
        // Of one length, so that no nonce and address together look like another nonce and address.
        let address = match request.datagram.remote.ip() {
            IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
            IpAddr::V6(a) => a.octets(),
        };
        let port = request.datagram.remote.port().to_be_bytes();
        let spi = request.initiator_spi.0.to_be_bytes();
        let parts = [request.nonce, &address, &port, &spi];
        let mac = prf(by, Prf::HmacSha2_256, self.secrets[secret].expose(), &parts);
        [&[version], &mac.expose()[..16]].concat()
    }
}

/// The addresses whose half-open IKE SAs are counted together: those that one stranger can answer from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// An address that the policy names as a peer's. It is counted apart from its neighbours.
    Named(IpAddr),
    /// Any other IPv4 address.
    V4(Ipv4Addr),
    /// The first 48 bits of any other IPv6 address: one site may have all addresses that begin with them
    /// (RFC 6177 §1).
    V6(u64),
}

impl Origin {
    /// The origin of an address. `named`: the policy names it as a peer's.
    pub fn of(address: IpAddr, named: bool) -> Self {
        match address {
            address if named => Self::Named(address),
            IpAddr::V4(a) => Self::V4(a),
            IpAddr::V6(a) => Self::V6((a.to_bits() >> 80) as u64),
        }
    }

    fn is_named(self) -> bool {
        matches!(self, Self::Named(_))
    }
}

/// The input of a cookie.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub datagram: Datagram<'a>,
    pub origin: Origin,
    pub initiator_spi: IkeSpi,
    pub nonce: &'a [u8],
    pub cookie: Option<&'a [u8]>,
}

fn random(rng: &mut Rng) -> Secret {
    let mut octets = vec![0; 32];
    rng.fill(&mut octets);
    Secret::new(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv6 address that the policy does not name.
    fn host(site: u16, network: u16, host: u16) -> Origin {
        Origin::of(IpAddr::from([0x2001, 0xdb8, site, network, 0, 0, 0, host]), false)
    }

    /// Half-open IKE SAs of so many hosts of one site, each in a network of its own.
    fn crowd(admissions: &mut Admissions, hosts: u16, site: u16) {
        for n in 0..hosts {
            admissions.enter(host(site, n, n));
        }
    }

    fn small() -> Config {
        Config { cookie_threshold: 8, half_open_limit: 64, ..Config::default() }
    }

    /// The decision about a request from there, without a cookie, after these half-open IKE SAs.
    fn judged(origin: Origin, fill: impl Fn(&mut Admissions)) -> Admission {
        let datagram = Datagram {
            local: "[2001:db8::1]:500".parse().unwrap(),
            remote: "[2001:db8:0:1::2]:500".parse().unwrap(),
            octets: &[],
        };
        let nonce = &[5; 32];
        let request = Request { datagram, origin, initiator_spi: IkeSpi(7), nonce, cookie: None };
        let mut rng = Rng::from_seed([1; 32]);
        let mut admissions = Admissions::new(&mut rng);
        fill(&mut admissions);
        admissions.judge(Instant::now(), &small(), &mut rng, request)
    }

    #[test]
    fn one_site_has_its_share_and_others_theirs() {
        let after = |hosts, site| judged(host(1, 7, 2), |a| crowd(a, hosts, site));
        assert!(matches!(after(11, 1), Admission::Cookie(_)));
        assert_eq!(after(12, 1), Admission::Full);
        assert!(matches!(after(49, 2), Admission::Cookie(_)));
        assert_eq!(after(50, 2), Admission::Full);
    }

    #[test]
    fn strangers_leave_room_for_those_whom_the_policy_names() {
        let peer = Origin::of(IpAddr::from([192, 0, 2, 1]), true);
        let neighbour = Origin::of(IpAddr::from([192, 0, 2, 2]), true);
        let after = |of_neighbour: usize, origin| {
            judged(origin, |admissions| {
                crowd(admissions, 50, 2);
                (0..of_neighbour).for_each(|_| admissions.enter(neighbour));
            })
        };
        assert_eq!(after(0, host(1, 7, 2)), Admission::Full);
        assert!(matches!(after(0, peer), Admission::Cookie(_)));
        // Each of them has its share, and all of them together the places that are left.
        assert!(matches!(after(11, neighbour), Admission::Cookie(_)));
        assert_eq!(after(12, neighbour), Admission::Full);
        assert!(matches!(after(13, peer), Admission::Cookie(_)));
        assert_eq!(after(14, peer), Admission::Full);
    }

    #[test]
    fn an_admission_that_has_ended_takes_no_place() {
        let mut rng = Rng::from_seed([1; 32]);
        let mut admissions = Admissions::new(&mut rng);
        crowd(&mut admissions, 9, 1);
        for n in 0..9 {
            admissions.leave(host(1, n, n));
        }
        let held = (admissions.half_open, admissions.unnamed, admissions.origins.len());
        assert_eq!(held, (0, 0, 0));
    }

    #[test]
    fn a_cookie_for_an_ipv6_address_is_none_for_the_ipv4_address_in_it() {
        let mut rng = Rng::from_seed([1; 32]);
        let admissions = Admissions::new(&mut rng);
        let cookie = |remote: &str, nonce: &[u8]| {
            let datagram = Datagram {
                local: "192.0.2.1:500".parse().unwrap(),
                remote: remote.parse().unwrap(),
                octets: &[],
            };
            let origin = Origin::of(datagram.remote.ip(), false);
            let spi = IkeSpi(7);
            let request = Request { datagram, origin, initiator_spi: spi, nonce, cookie: None };
            admissions.cookie(Provider::default(), 0, 0, request)
        };
        // 192.0.2.66 stands at the end of the IPv6 address, whose beginning continues the nonce.
        let address: std::net::Ipv6Addr = "2001:db8::c000:242".parse().unwrap();
        let longer = [[5; 16].as_slice(), &address.octets()[..12]].concat();
        assert_ne!(cookie("[2001:db8::c000:242]:500", &[5; 16]), cookie("192.0.2.66:500", &longer));
    }

    #[test]
    fn only_the_right_cookie_is_good_and_only_for_a_while() {
        let mut rng = Rng::from_seed([1; 32]);
        let mut admissions = Admissions::new(&mut rng);
        let config = Config { cookie_threshold: 1, half_open_limit: 3, ..Config::default() };
        let start = Instant::now();
        let datagram = Datagram {
            local: "192.0.2.1:500".parse().unwrap(),
            remote: "192.0.2.2:500".parse().unwrap(),
            octets: &[],
        };
        let origin = Origin::of(datagram.remote.ip(), false);
        let nonce = &[5; 32];
        let request = Request { datagram, origin, initiator_spi: IkeSpi(7), nonce, cookie: None };
        assert_eq!(admissions.judge(start, &config, &mut rng, request), Admission::Welcome);
        crowd(&mut admissions, 1, 1);
        let Admission::Cookie(cookie) = admissions.judge(start, &config, &mut rng, request) else {
            panic!()
        };
        let with = Request { cookie: Some(&cookie), ..request };
        assert_eq!(admissions.judge(start, &config, &mut rng, with), Admission::Welcome);
        let elsewhere = Datagram { remote: "192.0.2.3:500".parse().unwrap(), ..datagram };
        let spoofed = Request { datagram: elsewhere, ..with };
        assert_ne!(admissions.judge(start, &config, &mut rng, spoofed), Admission::Welcome);
        let later = start + SECRET_FOR;
        assert_eq!(admissions.judge(later, &config, &mut rng, with), Admission::Welcome);
        let too_late = later + SECRET_FOR;
        assert_ne!(admissions.judge(too_late, &config, &mut rng, with), Admission::Welcome);
    }
}
