//! Octets of a fuzzer as decisions.

/// Octets not used yet. When they run out every question is answered with `None`, and the run ends.
pub(crate) struct Octets<'a>(&'a [u8]);

impl<'a> Octets<'a> {
    pub fn new(octets: &'a [u8]) -> Self {
        Self(octets)
    }

    pub fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes([self.u8()?, self.u8()?]))
    }

    /// At most `len` octets: what there is.
    pub fn up_to(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A number below `bound`; `None` where there is none, too.
    pub fn below(&mut self, bound: usize) -> Option<usize> {
        let number = usize::from(self.u8()?);
        number.checked_rem(bound)
    }

    pub fn flag(&mut self) -> Option<bool> {
        Some(self.u8()? & 1 == 1)
    }

    /// One of some.
    pub fn pick<'t, T>(&mut self, from: &'t [T]) -> Option<&'t T> {
        from.get(self.below(from.len())?)
    }
}
