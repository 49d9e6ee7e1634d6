//! The kernel's offloads, which make many packets cost little more than one. Each can be switched off: if a driver has
//! it wrong, and to see its effect.

use std::fmt;
use std::str::FromStr;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KernelOffload {
    /// The TUN device hands over and takes super-packets and unfinished checksums.
    DeviceOffload,
    /// The kernel cuts what is sent into datagrams.
    UdpSegmentation,
    /// The kernel hands over datagrams of one flow together.
    UdpGro,
}

impl KernelOffload {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::DeviceOffload, Self::UdpSegmentation, Self::UdpGro];

    /// Its stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::DeviceOffload => "device-offload",
            Self::UdpSegmentation => "udp-segmentation",
            Self::UdpGro => "udp-gro",
        }
    }
}

impl fmt::Display for KernelOffload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for KernelOffload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|offload| offload.name() == text);
        known.ok_or_else(|| {
            format!(
                "there is no {text:?} to do without; use {}",
                Self::ALL.map(Self::name).join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for offload in KernelOffload::ALL {
            assert_eq!(offload.to_string().parse(), Ok(offload));
        }
        let error = "gro".parse::<KernelOffload>().expect_err("no such name");
        assert!(error.contains("use device-offload, udp-segmentation, udp-gro"), "{error}");
    }
}
