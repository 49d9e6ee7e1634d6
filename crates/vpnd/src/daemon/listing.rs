//! All tunnels a page at a time, so that neither the daemon nor its client has to hold all of them at once.

use super::Daemon;
use super::refusal::refusal;
use control::protocol::{Refusal, RefusalCode, Tunnel, TunnelPage};
use ike::status::{IkeStatus, PageStart, State, StatusPage};
use policy::Policy;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

/// Phase 2 tunnels that the gateway is asked for at a time: its peers do not wait for longer than that takes.
const AT_ONCE: usize = 64;

/// Phase 2 tunnels of the longest page.
const LONGEST: usize = 1000;

/// Tells whether a place that a client was told of is one of the present policy.
#[derive(Debug)]
pub(super) struct Places {
    /// The places of a daemon that has ended are none of this one.
    began: u128,
    latest: Mutex<Latest>,
}

/// The policy of which a page was told last.
#[derive(Debug, Default)]
struct Latest {
    policy: Weak<Policy>,
    /// The number of policies before it.
    number: u64,
}

impl Default for Places {
    fn default() -> Self {
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        Self { began, latest: Mutex::default() }
    }
}

impl Places {
    /// A place as text.
    fn tell(&self, start: &PageStart) -> String {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        // While the weak reference is there, no other policy has that address.
        if !std::ptr::eq(latest.policy.as_ptr(), Arc::as_ptr(start.policy())) {
            *latest = Latest {
                policy: Arc::downgrade(start.policy()),
                number: latest.number.wrapping_add(1),
            };
        }
        format!("{:x}.{}.{}.{}", self.began, latest.number, start.tunnel(), start.child())
    }

    /// The place of this text.
    fn find(&self, text: &str) -> Result<PageStart, Refusal> {
        let no_place = || {
            let message = format!("{text:?} is no place where a page ends; use the field next");
            Refusal::new(RefusalCode::BadRequest, message)
        };
        let parts: Vec<&str> = text.split('.').collect();
        let [began, number, tunnel, child] = parts[..] else { return Err(no_place()) };
        let began = u128::from_str_radix(began, 16).map_err(|_| no_place())?;
        let number: u64 = number.parse().map_err(|_| no_place())?;
        let [tunnel, child] = [tunnel, child].map(str::parse::<usize>);
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let is_latest = (began, number) == (self.began, latest.number);
        let policy = latest.policy.upgrade().filter(|_| is_latest).ok_or_else(outdated)?;
        tunnel
            .ok()
            .zip(child.ok())
            .and_then(|(tunnel, child)| PageStart::at(policy, tunnel, child))
            .ok_or_else(no_place)
    }
}

fn outdated() -> Refusal {
    let message = "the policy was replaced while its tunnels were read; begin again";
    Refusal::new(RefusalCode::Outdated, message)
}

impl Daemon {
    /// At most `count` phase 2 tunnels, those behind the place `after`.
    pub(super) async fn list_page(
        &self,
        all: bool,
        after: Option<&str>,
        count: u32,
    ) -> Result<TunnelPage, Refusal> {
        let count = usize::try_from(count).unwrap_or(LONGEST).clamp(1, LONGEST);
        let (mut found, mut room) = (Vec::new(), count);
        let mut start = after.map(|place| self.places.find(place)).transpose()?;
        let next = loop {
            let view = self.gateway().tunnels();
            let page = view.status_page(start.take(), room.min(AT_ONCE)).await.map_err(refusal)?;
            let Some(StatusPage { mut tunnels, next }) = page else {
                if after.is_some() {
                    return Err(outdated());
                }
                (found, room) = (Vec::new(), count);
                continue;
            };
            tunnels.retain(|tunnel| all || is_active(tunnel));
            let size: usize = tunnels.iter().map(|tunnel| tunnel.children.len().max(1)).sum();
            room = room.saturating_sub(size);
            StatusPage { tunnels, next: None }.join(&mut found);
            start = next;
            if start.is_none() || room == 0 {
                break start;
            }
        };
        let mut tunnels = self.seen(&found);
        self.number(&mut tunnels).await?;
        Ok(TunnelPage { tunnels, next: next.map(|next| self.places.tell(&next)) })
    }

    /// Gives these tunnels their numbers.
    pub(super) async fn number(&self, tunnels: &mut [Tunnel]) -> Result<(), Refusal> {
        // Those of the policy have one. A peer may have asked for others.
        if self.numbers.apply(tunnels) {
            return Ok(());
        }
        let mut names: [Vec<String>; 2] = Default::default();
        let take = |page: Option<StatusPage>| match page {
            Some(page) => {
                for tunnel in page.tunnels {
                    names[1].extend(tunnel.children.into_iter().map(|child| child.name));
                    names[0].push(tunnel.name);
                }
            }
            None => names = Default::default(),
        };
        self.gateway().tunnels().each_page(take).await.map_err(refusal)?;
        self.numbers.renew(&names);
        self.numbers.apply(tunnels);
        Ok(())
    }
}

/// Returns `true` if something of it is up or being negotiated.
fn is_active(tunnel: &IkeStatus) -> bool {
    tunnel.state != State::Down || tunnel.children.iter().any(|child| child.state != State::Down)
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::Secret;

    fn policy() -> Arc<Policy> {
        let site = Policy::site_to_site("site")
            .local("192.0.2.1")
            .remote("192.0.2.2")
            .psk(Secret::new(b"secret".to_vec()))
            .protect("10.1.0.0/24", "10.2.0.0/24")
            .build();
        Arc::new(site.expect("a good description"))
    }

    fn start(policy: &Arc<Policy>) -> PageStart {
        PageStart::at(Arc::clone(policy), 0, 0).expect("it has a tunnel")
    }

    fn code(found: Result<PageStart, Refusal>) -> RefusalCode {
        found.expect_err("no place").code
    }

    #[test]
    fn a_place_is_found_until_the_policy_is_replaced() {
        let places = Places::default();
        let (first, second) = (policy(), policy());
        let told = places.tell(&start(&first));
        assert_eq!(places.tell(&start(&first)), told);
        let found = places.find(&told).expect("the same policy");
        assert!(Arc::ptr_eq(found.policy(), &first));
        let other = places.tell(&start(&second));
        assert_eq!(code(places.find(&told)), RefusalCode::Outdated);
        assert!(places.find(&other).is_ok());
        drop(second);
        assert_eq!(code(places.find(&other)), RefusalCode::Outdated);
        let restarted = Places { began: places.began + 1, ..Places::default() };
        restarted.tell(&start(&first));
        assert_eq!(code(restarted.find(&told)), RefusalCode::Outdated);
    }

    #[test]
    fn other_texts_are_no_places() {
        let places = Places::default();
        let policy = policy();
        let told = places.tell(&start(&policy));
        let places_of_it = told.strip_suffix(".0.0").expect("the first tunnel");
        for text in ["", "1.2.3", "x.1.0.0", "1.x.0.0", "1.1.0.0.0"] {
            assert_eq!(code(places.find(text)), RefusalCode::BadRequest, "{text}");
        }
        for behind in [".1.0", ".0.1", ".x.0", ".0.-1", ".0.18446744073709551616"] {
            let text = format!("{places_of_it}{behind}");
            assert_eq!(code(places.find(&text)), RefusalCode::BadRequest, "{text}");
        }
    }
}
