//! What a stranger may cost: half-open IKE SAs are counted, cookies asked for (RFC 7296 §2.6).

use crate::Config;
use crate::crypto::prf::prf;
use crate::crypto::rng::Rng;
use crate::engine::Datagram;
use crate::wire::header::IkeSpi;
use policy::{Prf, Secret};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;

/// How long a cookie secret makes cookies; they are accepted for as long again.
const SECRET_FOR: Duration = Duration::from_secs(60);

/// What to do with a request of a stranger.
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
}

impl Admissions {
    pub fn new(rng: &mut Rng) -> Self {
        Self { secrets: [random(rng), random(rng)], version: 0, renew_at: None }
    }

    /// Judges an IKE_SA_INIT request. `cookie` is what it came with.
    pub fn judge(
        &mut self,
        now: Instant,
        config: &Config,
        rng: &mut Rng,
        half_open: usize,
        request: Request<'_>,
    ) -> Admission {
        if half_open >= config.half_open_limit {
            return Admission::Full;
        }
        if half_open < config.cookie_threshold {
            return Admission::Welcome;
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
        let address = match request.datagram.remote.ip() {
            IpAddr::V4(a) => a.octets().to_vec(),
            IpAddr::V6(a) => a.octets().to_vec(),
        };
        let port = request.datagram.remote.port().to_be_bytes();
        let spi = request.initiator_spi.0.to_be_bytes();
        let parts = [request.nonce, &address, &port, &spi];
        let mac = prf(Prf::HmacSha2_256, self.secrets[secret].expose(), &parts);
        [&[version], &mac.expose()[..16]].concat()
    }
}

/// What a cookie is made of.
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
        assert_eq!(admissions.judge(start, &config, &mut rng, 0, request), Admission::Welcome);
        assert_eq!(admissions.judge(start, &config, &mut rng, 3, request), Admission::Full);
        let Admission::Cookie(cookie) = admissions.judge(start, &config, &mut rng, 1, request)
        else {
            panic!()
        };
        let with = Request { cookie: Some(&cookie), ..request };
        assert_eq!(admissions.judge(start, &config, &mut rng, 1, with), Admission::Welcome);
        let elsewhere = Datagram { remote: "192.0.2.3:500".parse().unwrap(), ..datagram };
        let spoofed = Request { datagram: elsewhere, ..with };
        assert_ne!(admissions.judge(start, &config, &mut rng, 1, spoofed), Admission::Welcome);
        let later = start + SECRET_FOR;
        assert_eq!(admissions.judge(later, &config, &mut rng, 1, with), Admission::Welcome);
        let too_late = later + SECRET_FOR;
        assert_ne!(admissions.judge(too_late, &config, &mut rng, 1, with), Admission::Welcome);
    }
}
