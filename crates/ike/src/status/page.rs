//! All tunnels of a policy a few at a time, however many phase 2 tunnels one of them has.

use super::IkeStatus;
use policy::{IkeTunnel, Policy};
use std::ops::Range;
use std::sync::Arc;

/// Some of the tunnels, in the order of the policy.
#[derive(Clone, Debug)]
pub struct StatusPage {
    /// The tunnels. The first one may be the rest of the last one of the page before: then it has the same name and the
    /// phase 2 tunnels that are not told yet.
    pub tunnels: Vec<IkeStatus>,
    /// The place where the next page begins; `None`: this is the last one.
    pub next: Option<PageStart>,
}

/// A place in a policy where a page begins.
#[derive(Clone, Debug)]
pub struct PageStart {
    policy: Arc<Policy>,
    tunnel: usize,
    child: usize,
}

impl PageStart {
    /// The place of a phase 2 tunnel in the list of its phase 1 tunnel, and of that one in a policy. `None`: the policy
    /// has no such tunnel.
    pub fn at(policy: Arc<Policy>, tunnel: usize, child: usize) -> Option<Self> {
        let children = policy.tunnels.get(tunnel)?.children.len();
        (child == 0 || child < children).then_some(Self { policy, tunnel, child })
    }

    /// The policy.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The place of the phase 1 tunnel in the policy.
    pub fn tunnel(&self) -> usize {
        self.tunnel
    }

    /// The place of the phase 2 tunnel in the list of the phase 1 tunnel.
    pub fn child(&self) -> usize {
        self.child
    }
}

impl StatusPage {
    /// The page of `policy` that begins at `start`, or the first one. It has at most `count` phase 2 tunnels of the
    /// policy (at least one); a tunnel without any counts as one. `picture` is asked for the state of a tunnel with
    /// some of its phase 2 tunnels, which it gets as places in [`IkeTunnel::children`].
    ///
    /// `None`: `start` is a place in another policy, so that the reading must begin again.
    pub fn of(
        policy: &Arc<Policy>,
        start: Option<PageStart>,
        count: usize,
        mut picture: impl FnMut(&IkeTunnel, Range<usize>) -> IkeStatus,
    ) -> Option<Self> {
        let (mut tunnel, mut child) = match start {
            None => (0, 0),
            Some(start) if Arc::ptr_eq(&start.policy, policy) => (start.tunnel, start.child),
            Some(_) => return None,
        };
        let (mut tunnels, mut room) = (Vec::new(), count.max(1));
        while let Some(defined) = policy.tunnels.get(tunnel).filter(|_| room > 0) {
            let end = defined.children.len().min(child.saturating_add(room));
            tunnels.push(picture(defined, child..end));
            room -= (end - child).max(1);
            (tunnel, child) = match end == defined.children.len() {
                true => (tunnel + 1, 0),
                false => (tunnel, end),
            };
        }
        let more = tunnel < policy.tunnels.len();
        let next = more.then(|| PageStart { policy: Arc::clone(policy), tunnel, child });
        Some(Self { tunnels, next })
    }

    /// Puts the tunnels behind those of earlier pages, each tunnel once.
    pub fn join(self, earlier: &mut Vec<IkeStatus>) {
        for tunnel in self.tunnels {
            match earlier.last_mut() {
                Some(last) if last.name == tunnel.name => last.children.extend(tunnel.children),
                _ => earlier.push(tunnel),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::ChildStatus;
    use policy::{Mode, Secret};
    use proptest::prelude::*;

    /// A policy whose tunnels have so many phase 2 tunnels each.
    fn policy(children: &[usize]) -> Arc<Policy> {
        let tunnel = |(number, count): (usize, &usize)| {
            let site = Policy::site_to_site(format!("site{number}"))
                .local("192.0.2.1")
                .remote("192.0.2.2")
                .psk(Secret::new(b"secret".to_vec()))
                .protect("10.1.0.0/24", "10.2.0.0/24");
            let site = site.build().expect("a good description");
            let mut tunnel = (*site.tunnels[0]).clone();
            let child = (*tunnel.children[0]).clone();
            let named =
                |number| policy::ChildTunnel { name: format!("net{number}"), ..child.clone() };
            tunnel.children = (0..*count).map(|number| Arc::new(named(number))).collect();
            tunnel
        };
        Arc::new(children.iter().enumerate().map(tunnel).collect())
    }

    fn picture(tunnel: &IkeTunnel, children: Range<usize>) -> IkeStatus {
        let mut picture = IkeStatus::new(&tunnel.name);
        let child = |child: &Arc<policy::ChildTunnel>| ChildStatus::new(&child.name, Mode::Tunnel);
        picture.children = tunnel.children[children].iter().map(child).collect();
        picture
    }

    fn names(tunnels: &[IkeStatus]) -> Vec<(String, Vec<String>)> {
        let children = |t: &IkeStatus| t.children.iter().map(|c| c.name.clone()).collect();
        tunnels.iter().map(|t| (t.name.clone(), children(t))).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Pages are small, and together they are the whole, in its order.
        #[test]
        fn pages_make_the_whole(children in prop::collection::vec(0..9_usize, 0..8), count in 0..7_usize) {
            let policy = policy(&children);
            let (mut told, mut start) = (Vec::new(), None);
            loop {
                let page = StatusPage::of(&policy, start, count, picture).expect("the same policy");
                let size: usize = page.tunnels.iter().map(|t| t.children.len().max(1)).sum();
                prop_assert!(size <= count.max(1), "{size}");
                prop_assert!(size > 0 || policy.tunnels.is_empty());
                start = page.next.clone();
                page.join(&mut told);
                if start.is_none() {
                    break;
                }
            }
            let whole: Vec<_> = policy.tunnels.iter().map(|t| picture(t, 0..t.children.len())).collect();
            prop_assert_eq!(names(&told), names(&whole));
        }
    }

    #[test]
    fn the_place_in_a_policy_is_no_place_in_another() {
        let (before, after) = (policy(&[3, 1]), policy(&[3, 1]));
        let start = StatusPage::of(&before, None, 2, picture).expect("the first page").next;
        assert!(StatusPage::of(&after, start.clone(), 2, picture).is_none());
        assert!(StatusPage::of(&before, start, 2, picture).is_some());
    }

    #[test]
    fn a_place_is_one_of_the_policy() {
        let policy = policy(&[3, 0]);
        let at = |tunnel, child| {
            let start = PageStart::at(Arc::clone(&policy), tunnel, child)?;
            let page = StatusPage::of(&policy, Some(start), 9, picture).expect("the same policy");
            Some(page.tunnels.iter().map(|tunnel| tunnel.children.len()).collect::<Vec<_>>())
        };
        assert_eq!(
            [at(0, 0), at(0, 2), at(1, 0)],
            [Some(vec![3, 0]), Some(vec![1, 0]), Some(vec![0])]
        );
        assert_eq!([at(0, 3), at(1, 1), at(2, 0), at(usize::MAX, usize::MAX)], [const { None }; 4]);
    }
}
