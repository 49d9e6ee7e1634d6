//! The properties that a packet must have beside its addresses and ports, for tunnels that a mark or an interface
//! selects in the kernel.
//!
//! A policy has none of these: they are settings of a host. A program that has the settings gives them as [`Bindings`]
//! to the functions that compare tunnels.

use std::collections::BTreeMap;

/// The mark and the interface that a tunnel's packets must have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Binding {
    /// Value and mask of the packets' mark.
    pub mark: Option<(u32, u32)>,
    /// Identifier of the XFRM interface that they pass (`ip link add type xfrm if_id`).
    pub if_id: Option<u32>,
    /// The tunnel may be in userspace, which looks at no interface: its routes to a TUN device stand before those to an
    /// XFRM interface, so that interfaces do not tell it from other tunnels.
    pub any_interface: bool,
}

impl Binding {
    /// Of a tunnel that may be in userspace: it takes every packet that its selectors cover.
    pub const ANY: Self = Self { mark: None, if_id: None, any_interface: true };

    /// Returns `true` if every packet that has the mark and the interface of `part` has these, too. Where
    /// either takes packets of any interface, one of the two gets no packet: interfaces do not count.
    pub fn includes(self, part: Self) -> bool {
        let [(value, mask), (other, others)] = [self, part].map(Self::value_and_mask);
        self.shares_interface(part) && others & mask == mask && other & mask == value
    }

    /// Returns `true` if a packet can have both marks and both interfaces.
    pub fn meets(self, other: Self) -> bool {
        let [(value, mask), (others, theirs)] = [self, other].map(Self::value_and_mask);
        self.shares_interface(other) && (value ^ others) & mask & theirs == 0
    }

    fn value_and_mask(self) -> (u32, u32) {
        let (value, mask) = self.mark.unwrap_or_default();
        (value & mask, mask)
    }

    fn shares_interface(self, other: Self) -> bool {
        self.any_interface || other.any_interface || self.interface() == other.interface()
    }

    /// The kernel compares identifiers: a packet of no XFRM interface has 0, and a policy without one, too.
    fn interface(self) -> u32 {
        self.if_id.unwrap_or_default()
    }
}

/// The bindings of phase 2 tunnels by name; unless [`Bindings::with_others`] says more, those that it does not have are
/// bound to nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bindings {
    named: BTreeMap<String, Binding>,
    others: Binding,
}

impl Bindings {
    /// The binding of a phase 2 tunnel.
    pub fn of(&self, child: &str) -> Binding {
        self.named.get(child).copied().unwrap_or(self.others)
    }

    /// The same with a binding for the phase 2 tunnels that it does not have.
    #[must_use]
    pub fn with_others(self, others: Binding) -> Self {
        Self { others, ..self }
    }
}

impl FromIterator<(String, Binding)> for Bindings {
    fn from_iter<I: IntoIterator<Item = (String, Binding)>>(bindings: I) -> Self {
        Self { named: bindings.into_iter().collect(), others: Binding::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mark(value: u32, mask: u32) -> Binding {
        Binding { mark: Some((value, mask)), ..Binding::default() }
    }

    fn interface(if_id: u32) -> Binding {
        Binding { if_id: Some(if_id), ..Binding::default() }
    }

    #[test]
    fn a_mark_is_a_part_of_no_mark_and_an_interface_is_not_a_part_of_none() {
        let none = Binding::default();
        assert!(none.includes(none) && none.includes(mark(1, u32::MAX)));
        assert!(!mark(1, u32::MAX).includes(none) && mark(1, u32::MAX).meets(none));
        assert!(!mark(1, u32::MAX).meets(mark(2, u32::MAX)));
        // A mask of fewer bits is wider.
        assert!(mark(1, 1).includes(mark(0x11, 0xff)) && !mark(0x11, 0xff).includes(mark(1, 1)));
        assert!(mark(1, 1).meets(mark(0x20, 0xf0)) && !mark(1, 1).includes(mark(0x20, 0xf0)));
        assert!(!none.includes(interface(7)) && !none.meets(interface(7)));
        assert!(!interface(7).includes(none) && !interface(7).meets(interface(8)));
        assert!(none.includes(interface(0)) && interface(0).includes(none));
        let both = Binding { if_id: Some(7), ..mark(1, 3) };
        assert!(interface(7).includes(both) && !both.includes(interface(7)));
    }

    #[test]
    fn interfaces_do_not_tell_a_tunnel_that_may_be_in_userspace_from_others() {
        let any = Binding::ANY;
        for other in [any, Binding::default(), interface(7), mark(1, 1)] {
            assert!(any.includes(other) && any.meets(other) && other.meets(any), "{other:?}");
        }
        assert!(interface(7).includes(any) && Binding::default().includes(any));
        assert!(!mark(1, 1).includes(any), "packets without the mark are left");
        let some: Bindings = [("one".to_owned(), interface(7))].into_iter().collect();
        let some = some.with_others(any);
        assert_eq!((some.of("one"), some.of("two")), (interface(7), any));
    }

    fn bindings() -> impl Strategy<Value = Binding> {
        let mark = prop::option::of((0..8_u32, 0..8_u32).prop_map(|(v, mask)| (v & mask, mask)));
        (mark, prop::option::of(0..3_u32)).prop_map(|(mark, if_id)| Binding {
            mark,
            if_id,
            ..Binding::default()
        })
    }

    proptest! {
        /// As the kernel compares packets with policies.
        #[test]
        fn as_the_kernel_matches(a in bindings(), b in bindings()) {
            let has = |binding: Binding, mark: u32, if_id: u32| {
                let (value, mask) = binding.mark.unwrap_or_default();
                mark & mask == value && if_id == binding.if_id.unwrap_or_default()
            };
            let packets = || (0..8_u32).flat_map(|mark| (0..3_u32).map(move |if_id| (mark, if_id)));
            let includes = packets().all(|(m, i)| !has(b, m, i) || has(a, m, i));
            prop_assert_eq!(a.includes(b), includes);
            prop_assert_eq!(a.meets(b), packets().any(|(m, i)| has(a, m, i) && has(b, m, i)));
        }
    }
}
