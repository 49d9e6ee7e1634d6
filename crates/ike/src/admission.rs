//! Limits on the cost of strangers: half-open IKE SAs are counted, cookies demanded (RFC 7296 §2.6).

use crate::config::Config;
use crate::crypto::prf::prf;
use crate::crypto::rng::Rng;
use crate::datagram::Datagram;
use crate::wire::header::IkeSpi;
use policy::{Prf, Secret};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;

/// The time for which a half-open IKE SA waits for IKE_AUTH.
pub(crate) const HALF_OPEN_FOR: Duration = Duration::from_secs(30);

/// The time for which a cookie secret makes cookies. They are accepted for the same time after that.
const SECRET_FOR: Duration = Duration::from_secs(60);

/// So many neighbourhoods it takes to fill every place of half-open IKE SAs.
const NEIGHBOURHOODS: usize = 16;

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

/// The cookie secrets, the present one and the one before.
pub(crate) struct Admissions {
    secrets: [Secret; 2],
    version: u8,
    renew_at: Option<Instant>,
    half_open: usize,
    /// Half-open IKE SAs by where they come from.
    neighbourhoods: HashMap<Neighbourhood, usize>,
    /// Until when work that left nothing counts as one of them, and for whom; the earliest first.
    wasted: VecDeque<(Instant, IpAddr)>,
}

impl Admissions {
    pub fn new(rng: &mut Rng) -> Self {
        Self {
            secrets: [random(rng), random(rng)],
            version: 0,
            renew_at: None,
            half_open: 0,
            neighbourhoods: HashMap::new(),
            wasted: VecDeque::new(),
        }
    }

    /// A half-open IKE SA is there.
    pub fn enter(&mut self, address: IpAddr) {
        self.half_open += 1;
        *self.neighbourhoods.entry(neighbourhood(address)).or_default() += 1;
    }

    /// A half-open IKE SA is gone, or is none any more.
    pub fn leave(&mut self, address: IpAddr) {
        self.half_open -= 1;
        if let Entry::Occupied(mut neighbours) = self.neighbourhoods.entry(neighbourhood(address)) {
            *neighbours.get_mut() -= 1;
            if *neighbours.get() == 0 {
                neighbours.remove();
            }
        }
    }

    /// A request has cost a key and left no half-open IKE SA: it counts for as long as one, or who sends only such
    /// requests would never be asked for a cookie.
    pub fn waste(&mut self, now: Instant, address: IpAddr) {
        self.enter(address);
        self.wasted.push_back((now + HALF_OPEN_FOR, address));
    }

    fn forget_wasted(&mut self, now: Instant) {
        while let Some((_, address)) = self.wasted.front().filter(|(until, _)| *until <= now) {
            let address = *address;
            self.wasted.pop_front();
            self.leave(address);
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
        if self.half_open >= config.half_open_limit {
            return Admission::Full;
        }
        if self.half_open < config.cookie_threshold {
            return Admission::Welcome;
        }
        // Requests without a cookie may have been sent by others in the name of this neighbourhood.
        let share = (config.half_open_limit / NEIGHBOURHOODS).max(1);
        let home = neighbourhood(request.datagram.remote.ip());
        if self.neighbourhoods.get(&home).copied().unwrap_or(0) >= config.cookie_threshold + share {
            return Admission::Full;
        }
        self.renew(now, rng);
        let good = |cookie: &[u8]| {
            [(0, self.version), (1, self.version.wrapping_sub(1))].iter().any(|(index, version)| {
                bool::from(self.cookie(*index, *version, request).as_slice().ct_eq(cookie))
            })
        };
        if request.cookie.is_some_and(good) {
            Admission::Welcome
        } else {
            Admission::Cookie(self.cookie(0, self.version, request))
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
    fn cookie(&self, secret: usize, version: u8, request: Request<'_>) -> Vec<u8> {
        // Of one length, so that no nonce and address together look like another nonce and address.
        let address = match request.datagram.remote.ip() {
            IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
            IpAddr::V6(a) => a.octets(),
        };
        let port = request.datagram.remote.port().to_be_bytes();
        let spi = request.initiator_spi.0.to_be_bytes();
        let parts = [request.nonce, &address, &port, &spi];
        let mac = prf(Prf::HmacSha2_256, self.secrets[secret].expose(), &parts);
        [&[version], &mac.expose()[..16]].concat()
    }
}

/// The addresses that one stranger can answer from: an IPv4 address, or the 64 bits that come with an IPv6 link.
type Neighbourhood = (bool, u64);

fn neighbourhood(address: IpAddr) -> Neighbourhood {
    match address {
        IpAddr::V4(a) => (false, a.to_bits().into()),
        IpAddr::V6(a) => (true, (a.to_bits() >> 64) as u64),
    }
}

/// The input of a cookie.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub datagram: Datagram<'a>,
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

    /// Half-open IKE SAs of so many hosts of one link.
    fn crowd(admissions: &mut Admissions, hosts: u16, link: u16) {
        for host in 0..hosts {
            admissions.enter(IpAddr::from([0x2001, 0xdb8, 0, link, 0, 0, 0, host]));
        }
    }

    #[test]
    fn one_neighbourhood_has_its_share_and_others_theirs() {
        let config = Config { cookie_threshold: 8, half_open_limit: 64, ..Config::default() };
        let datagram = Datagram {
            local: "[2001:db8::1]:500".parse().unwrap(),
            remote: "[2001:db8:0:1::2]:500".parse().unwrap(),
            octets: &[],
        };
        let request = Request { datagram, initiator_spi: IkeSpi(7), nonce: &[5; 32], cookie: None };
        let judge = |hosts, link| {
            let mut rng = Rng::from_seed([1; 32]);
            let mut admissions = Admissions::new(&mut rng);
            crowd(&mut admissions, hosts, link);
            admissions.judge(Instant::now(), &config, &mut rng, request)
        };
        assert!(matches!(judge(11, 1), Admission::Cookie(_)));
        assert_eq!(judge(12, 1), Admission::Full);
        assert!(matches!(judge(63, 2), Admission::Cookie(_)));
        assert_eq!(judge(64, 2), Admission::Full);
    }

    #[test]
    fn who_has_left_takes_no_place() {
        let mut rng = Rng::from_seed([1; 32]);
        let mut admissions = Admissions::new(&mut rng);
        crowd(&mut admissions, 9, 1);
        for host in 0..9 {
            admissions.leave(IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, host]));
        }
        assert_eq!((admissions.half_open, admissions.neighbourhoods.len()), (0, 0));
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
            let request = Request { datagram, initiator_spi: IkeSpi(7), nonce, cookie: None };
            admissions.cookie(0, 0, request)
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
        let request = Request { datagram, initiator_spi: IkeSpi(7), nonce: &[5; 32], cookie: None };
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
