//! The features of network cards for IPsec, from the kernel's ethtool interface.

use crate::placement::{EspFeatures, Features};
use serde::Serialize;
use std::io;
use std::path::Path;

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Device {
    /// As in `eth0`.
    pub name: String,
    /// The kernel's driver; `null` where there is no card behind the device.
    pub driver: Option<String>,
    /// Features that work on ESP, which it has.
    pub features: Vec<Feature>,
}

/// A feature of a network device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Feature {
    /// As in `esp-hw-offload`.
    pub name: String,
    /// It is switched on.
    pub active: bool,
}

/// Every device but the loopback, with the features that work on ESP.
///
/// # Errors
/// Where the kernel does not tell.
pub fn devices() -> io::Result<Vec<Device>> {
    let all = EspFeatures::open()?.list()?;
    Ok(all.into_iter().filter(|(name, _)| name != "lo").map(device).collect())
}

fn device((name, features): (String, Features)) -> Device {
    let driver = driver(&name);
    Device {
        name,
        driver,
        features: features.into_iter().map(|(name, active)| Feature { name, active }).collect(),
    }
}

fn driver(device: &str) -> Option<String> {
    let link = Path::new("/sys/class/net").join(device).join("device/driver");
    let target = std::fs::read_link(link).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_a_card_has_no_driver() {
        let features = [("esp-hw-offload".to_owned(), false), ("esp-x".to_owned(), true)];
        let device = device(("none0".to_owned(), features.into()));
        let names: Vec<_> = device.features.iter().map(|f| (f.name.as_str(), f.active)).collect();
        assert_eq!(names, [("esp-hw-offload", false), ("esp-x", true)]);
        assert_eq!((device.name.as_str(), device.driver), ("none0", None));
    }
}
