//! The anti-replay window (RFC 4303 §3.4.3), a bitmap of blocks that advances without shifting (RFC 6479). Unlike
//! there it is cleared by the bit and not by the block, and so needs no block more than the window has.

#![forbid(unsafe_code)]

use crate::discard::Discard;

/// The widest window; wider ones are held to it.
pub(crate) const MAX_WINDOW: u32 = 65_536;

const BITS: u64 = u64::BITS as u64;

/// The anti-replay window: the sequence numbers that were received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Sequence numbers the window spans; 0 turns the check off.
    size: u64,
    /// The highest number received.
    top: u64,
    /// One bit per number, by number modulo their count; a power of two of blocks. There is one until a number needs
    /// another: many an SA lives and goes with hardly a packet.
    blocks: Box<[u64]>,
}

/// The sequence numbers that an SA has received, as another process needs them to refuse replays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Sequence numbers that the window spans; 0 turns the check off.
    pub size: u32,
    /// The highest number received.
    pub top: u64,
    /// One bit per number of the window, from the lowest number of each block on. The first block is that of the lowest
    /// number in the window, the last one that of `top`; bits of other numbers are 0. Empty if nothing was received, or
    /// without a check.
    pub blocks: Vec<u64>,
}

impl Window {
    /// The numbers received.
    pub(crate) fn received(&self) -> Received {
        let blocks = match self.span() {
            Some((bottom, top)) => (bottom / BITS..=top / BITS)
                .map(|block| self.blocks[self.index(block)] & within(block, bottom, top))
                .collect(),
            None => Vec::new(),
        };
        // `new` has bounded it.
        Received { size: self.size as u32, top: self.top, blocks }
    }

    /// A window that refuses these numbers; `None` if they are not what [`received`](Self::received) can return.
    pub(crate) fn of(received: &Received) -> Option<Self> {
        let Received { size, top, blocks } = received;
        if *size > MAX_WINDOW {
            return None;
        }
        let mut window = Self { top: *top, ..Self::new(*size) };
        let Some((bottom, top)) = window.span() else {
            return blocks.is_empty().then_some(window);
        };
        let numbers = bottom / BITS..=top / BITS;
        if blocks.len() as u64 != numbers.end() - numbers.start() + 1 {
            return None;
        }
        if *numbers.end() > 0 {
            window.complete();
        }
        for (block, bits) in numbers.zip(blocks) {
            if bits & !within(block, bottom, top) != 0 {
                return None;
            }
            *window.block(block) |= bits;
        }
        let (block, bit) = window.place(top);
        (window.blocks[block] & bit != 0).then_some(window)
    }

    /// The lowest and the highest number of which there are bits. The lowest is not below 1, the first number of an SA.
    fn span(&self) -> Option<(u64, u64)> {
        let below = self.size.checked_sub(1)?;
        (self.top > 0).then(|| (self.top.saturating_sub(below).max(1), self.top))
    }

    pub(crate) fn new(size: u32) -> Self {
        let size = u64::from(size.min(MAX_WINDOW));
        Self { size, top: 0, blocks: vec![0; usize::from(size > 0)].into() }
    }

    /// The whole sequence number of a packet that carries its low half (RFC 4303 §A2.2).
    pub(crate) fn infer(&self, low: u32) -> u64 {
        // The number with that low half nearest above the bottom of the window. Without a window, half of the space is
        // taken for the past.
        let size = if self.size == 0 { 1 << 31 } else { self.size };
        let bottom = self.top.saturating_add(1).saturating_sub(size);
        let candidate = bottom & !0xffff_ffff | u64::from(low);
        if candidate >= bottom { candidate } else { candidate.saturating_add(1 << 32) }
    }

    /// Refuses a packet whose number cannot be new. It changes nothing: the number is not authentic yet.
    pub(crate) fn check(&self, sequence: u64) -> Result<(), Discard> {
        if self.size == 0 || sequence > self.top {
            return Ok(());
        }
        // The first packet of an SA is number 1 (RFC 4303 §3.3.3), so that 0 was never sent.
        if sequence == 0 || self.top - sequence >= self.size {
            return Err(Discard::ReplayTooOld);
        }
        let (block, bit) = self.place(sequence);
        if self.blocks[block] & bit != 0 { Err(Discard::Replayed) } else { Ok(()) }
    }

    /// Returns `true` if all of these can be committed, in this order; they are sorted if need be. It may return
    /// `false` if the span of unordered numbers exceeds the window.
    pub(crate) fn takes(&self, numbers: &mut [u64]) -> bool {
        let rising = numbers.is_sorted_by(|a, b| a < b);
        if !rising && self.size > 0 {
            numbers.sort_unstable();
            // None may push another out of the window before it is committed.
            let (Some(lowest), Some(highest)) = (numbers.first(), numbers.last()) else {
                return true;
            };
            let distinct = numbers.is_sorted_by(|a, b| a < b);
            if !distinct || highest.max(&self.top) - lowest >= self.size {
                return false;
            }
        }
        numbers.iter().all(|number| self.check(*number).is_ok())
    }

    /// Takes note of an authentic packet if its number is new, and tells whether it is the highest so far.
    pub(crate) fn commit(&mut self, sequence: u64) -> Result<bool, Discard> {
        self.check(sequence)?;
        Ok(self.note(sequence))
    }

    /// Takes note of an authentic packet whose number is known to be new. Tells whether it is the highest so far.
    #[inline(always)]
    pub(crate) fn note(&mut self, sequence: u64) -> bool {
        debug_assert_eq!(self.check(sequence), Ok(()));
        let newest = sequence > self.top;
        if newest && sequence - 1 == self.top && !sequence.is_multiple_of(BITS) {
            // Nothing is taken over but its own bit, in a block that is there.
            self.top = sequence;
        } else if newest {
            self.advance(sequence);
        }
        if self.size > 0 {
            let (block, bit) = self.place(sequence);
            self.blocks[block] |= bit;
        }
        newest
    }

    /// Takes the next `count` numbers above the highest one as received, and all up to there.
    pub(crate) fn skip(&mut self, count: u64) {
        self.top = self.top.saturating_add(count);
        if self.size > 0 {
            self.complete();
            self.blocks.fill(u64::MAX);
        }
    }

    /// Clears what the numbers up to the new highest one, that included, take over from the oldest.
    fn advance(&mut self, top: u64) {
        let before = std::mem::replace(&mut self.top, top);
        if self.size == 0 {
            return;
        }
        let (left, entered) = (before / BITS, top / BITS);
        if left == entered {
            *self.block(left) &= up_to(before) | !up_to(top);
            return;
        }
        self.complete();
        for between in left + 1..entered.min(left + 1 + self.blocks.len() as u64) {
            *self.block(between) = 0;
        }
        *self.block(left) &= up_to(before);
        *self.block(entered) &= !up_to(top);
    }

    /// Makes room for the whole window, once.
    fn complete(&mut self) {
        let whole = self.size.div_ceil(BITS).next_power_of_two() as usize;
        if self.blocks.len() < whole {
            let mut blocks = vec![0; whole];
            blocks[..self.blocks.len()].copy_from_slice(&self.blocks);
            self.blocks = blocks.into();
        }
    }

    fn block(&mut self, number: u64) -> &mut u64 {
        let at = self.index(number);
        &mut self.blocks[at]
    }

    fn index(&self, block: u64) -> usize {
        (block & (self.blocks.len() as u64 - 1)) as usize
    }

    fn place(&self, sequence: u64) -> (usize, u64) {
        (self.index(sequence / BITS), 1 << (sequence % BITS))
    }
}

/// The bits of a block up to that of `number`.
#[inline]
fn up_to(number: u64) -> u64 {
    u64::MAX >> (BITS - 1 - number % BITS)
}

/// The bits of a block that are those of the numbers from `bottom` to `top`.
fn within(block: u64, bottom: u64, top: u64) -> u64 {
    let from = if block == bottom / BITS { u64::MAX << (bottom % BITS) } else { u64::MAX };
    let to = if block == top / BITS { up_to(top) } else { u64::MAX };
    from & to
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn zero_is_never_a_sequence_number() {
        assert_eq!(Window::new(64).check(0), Err(Discard::ReplayTooOld));
    }

    #[test]
    fn edges_of_the_window() {
        for size in [1, 63, 64, 65, 4096, MAX_WINDOW] {
            let mut window = Window::new(size);
            let top = 1_000_000;
            assert_eq!(window.commit(top), Ok(true));
            assert_eq!(window.commit(top), Err(Discard::Replayed));
            let oldest = top - u64::from(size) + 1;
            assert_eq!(window.check(oldest - 1), Err(Discard::ReplayTooOld), "{size}");
            if size > 1 {
                assert_eq!(window.commit(oldest), Ok(false), "{size}");
                assert_eq!(window.commit(oldest), Err(Discard::Replayed), "{size}");
            }
        }
    }

    #[test]
    fn wider_windows_are_held_to_the_widest() {
        let mut window = Window::new(u32::MAX);
        window.commit(1_000_000).expect("new");
        assert!(window.check(1_000_000 - u64::from(MAX_WINDOW)).is_err());
    }

    #[test]
    fn a_window_that_is_hardly_used_takes_no_room() {
        let mut window = Window::new(4096);
        window.commit(63).expect("new");
        assert_eq!(window.blocks.len(), 1);
        assert_eq!(window.commit(64), Ok(true));
        assert_eq!(window.blocks.len(), 64);
        // Numbers received before are remembered.
        assert_eq!(window.commit(63), Err(Discard::Replayed));
        assert_eq!(window.commit(62), Ok(false));
    }

    #[test]
    fn received_numbers_are_refused_where_a_bit_or_a_block_is_wrong() {
        let mut window = Window::new(64);
        for number in [90, 100, 101] {
            window.commit(number).expect("new");
        }
        let right = window.received();
        assert_eq!(right.blocks.len(), 2);
        assert_eq!(Window::of(&right), Some(window));
        let wrong = |change: fn(&mut Received)| {
            let mut received = right.clone();
            change(&mut received);
            Window::of(&received)
        };
        assert_eq!(wrong(|r| r.size = MAX_WINDOW + 1), None);
        assert_eq!(wrong(|r| r.blocks.truncate(1)), None);
        assert_eq!(wrong(|r| r.blocks.push(0)), None);
        assert_eq!(wrong(|r| r.blocks[0] |= 1), None, "number 0 is below the window");
        assert_eq!(wrong(|r| r.blocks[1] |= 1 << 63), None, "number 127 is above the highest");
        assert_eq!(wrong(|r| r.blocks[1] = 0), None, "the highest number was not received");
        assert_eq!(wrong(|r| r.top = 0), None);
    }

    #[test]
    fn without_a_window_everything_passes() {
        let mut window = Window::new(0);
        assert_eq!(window.commit(7), Ok(true));
        assert_eq!(window.commit(7), Ok(false));
        assert_eq!(window.commit(0), Ok(false));
    }

    #[test]
    fn high_half_is_inferred_across_the_wrap() {
        let mut window = Window::new(64);
        assert_eq!(window.infer(1), 1);
        window.commit(0xffff_fff0).expect("new");
        assert_eq!(window.infer(0xffff_ffff), 0xffff_ffff);
        assert_eq!(window.infer(5), 0x1_0000_0005);
        window.commit(0x1_0000_0005).expect("new");
        // Within the window, yet of the era before (RFC 4303 §A2.1, case B).
        assert_eq!(window.infer(0xffff_fff0), 0xffff_fff0);
        assert_eq!(window.infer(6), 0x1_0000_0006);
        assert_eq!(window.infer(0x8000_0000), 0x1_8000_0000);
    }

    #[test]
    fn skipped_numbers_and_all_before_them_are_as_received() {
        for size in [1, 32, 63, 64, 65, 4096] {
            for (top, count) in [(0, 1), (5, 0), (5, 70), (62, 1), (1000, 1 << 30), (7, u64::MAX)] {
                let mut window = Window::new(size);
                if top > 0 {
                    window.commit(top).expect("new");
                }
                window.skip(count);
                let highest = top.saturating_add(count);
                for number in highest.saturating_sub(u64::from(size) + 3)..=highest {
                    assert!(window.check(number).is_err(), "{size}: {number} of {highest}");
                }
                if highest == u64::MAX {
                    continue;
                }
                // Each number above is new once, whatever the order.
                for number in
                    [highest + 3, highest + 1, highest + 2].into_iter().take(size as usize)
                {
                    let is_new = window.commit(number).is_ok();
                    assert_eq!(is_new, size >= 3 || number == highest + 3, "{size}: {number}");
                    assert!(window.commit(number).is_err(), "{size}: {number}");
                }
            }
        }
        let mut off = Window::new(0);
        off.skip(9);
        assert_eq!(off.check(3), Ok(()));
    }

    proptest! {
        /// Against every number ever received, kept in a set.
        #[test]
        fn agrees_with_a_set(size in prop_oneof![Just(1u32), Just(32), Just(64), Just(100), Just(128), Just(1024)],
                             steps in proptest::collection::vec((0..3u8, 0..3000u64), 1..400)) {
            let mut window = Window::new(size);
            let mut seen = BTreeSet::new();
            let mut top = 0u64;
            for (kind, by) in steps {
                let sequence = match kind {
                    0 => top + by % 200,
                    1 => top.saturating_sub(by % 200),
                    _ => (top + by).saturating_sub(1500),
                };
                let fresh = sequence > 0 && sequence + u64::from(size) > top && !seen.contains(&sequence);
                let before = window.clone();
                prop_assert_eq!(window.check(sequence).is_ok(), fresh, "{} at {}", sequence, top);
                prop_assert_eq!(window.commit(sequence).ok(), fresh.then_some(sequence > top));
                if fresh {
                    seen.insert(sequence);
                    top = top.max(sequence);
                } else {
                    prop_assert_eq!(&window, &before);
                }
            }
        }

        /// A window that another process makes of the numbers refuses and takes every number as the first one does.
        #[test]
        fn a_window_made_of_what_was_received_is_as_the_first(
            size in prop_oneof![Just(0u32), Just(1), Just(32), Just(63), Just(64), Just(65), Just(100), Just(1024), Just(MAX_WINDOW)],
            start in prop_oneof![Just(0u64), Just(62), Just(4000), Just(0xffff_ff00), Just((1 << 40) - 5)],
            steps in proptest::collection::vec(0..300u64, 0..200),
        ) {
            let mut window = Window::new(size);
            for step in &steps {
                let _ = window.commit((start + step).max(1));
            }
            let received = window.received();
            let mut copy = Window::of(&received).expect("it is one that was exported");
            prop_assert_eq!(copy.received(), received);
            for number in (start.saturating_sub(1100)..start + 600).filter(|number| *number > 0) {
                prop_assert_eq!(copy.check(number), window.check(number), "{}", number);
            }
            for step in steps.iter().rev().map(|step| start + 2 * step + 1) {
                prop_assert_eq!(copy.infer(step as u32), window.infer(step as u32));
                prop_assert_eq!(copy.commit(step), window.commit(step), "{}", step);
            }
        }

        /// Whatever the numbers are: they are refused, or are those of the window that is made of them.
        #[test]
        fn numbers_that_no_window_has_are_refused(
            size in 0..200u32,
            top in prop_oneof![0..400u64, Just(u64::MAX)],
            blocks in proptest::collection::vec(prop_oneof![any::<u64>(), Just(0), Just(u64::MAX)], 0..6),
        ) {
            let received = Received { size, top, blocks };
            if let Some(window) = Window::of(&received) {
                prop_assert_eq!(window.received(), received);
            }
        }

        /// Numbers that are taken together can also be committed one by one; others must not be taken.
        #[test]
        fn takes_what_can_be_committed(size in prop_oneof![Just(0u32), Just(32), Just(64), Just(1024)],
                                       before in proptest::collection::vec(1..400u64, 0..200),
                                       numbers in proptest::collection::vec(1..400u64, 0..40), sorted: bool) {
            let mut window = Window::new(size);
            for number in before {
                let _ = window.commit(number);
            }
            let mut numbers = numbers;
            if sorted {
                numbers.sort_unstable();
            }
            let taken = window.takes(&mut numbers.clone());
            let untouched = window.clone();
            let one_by_one = numbers.iter().all(|number| window.commit(*number).is_ok());
            let span = numbers.iter().max().max(Some(&untouched.top)).copied().unwrap_or(0)
                - numbers.iter().min().copied().unwrap_or(0);
            prop_assert!(!taken || one_by_one);
            if sorted || size == 0 || span < u64::from(size) {
                prop_assert_eq!(taken, one_by_one);
            }
        }

        /// A number within the window, or at most 2³² − size ahead of its top, is inferred right.
        #[test]
        fn infers_the_number_sent(top in 1u64..1 << 40, ahead in 0u64..1 << 32, size in 1u32..4096) {
            let mut window = Window::new(size);
            window.commit(top).expect("the first");
            let bottom = (top + 1).saturating_sub(u64::from(size));
            let sent = bottom + ahead;
            prop_assert_eq!(window.infer(sent as u32), sent);
        }
    }
}
