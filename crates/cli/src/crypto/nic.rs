//! What network cards offer IPsec: their features, as the kernel's ethtool interface tells them.

use ethtool::{EthtoolAttr, EthtoolFeatureAttr, EthtoolFeatureBit, EthtoolHeader};
use futures_util::StreamExt;
use serde::Serialize;
use std::collections::BTreeSet;
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
    /// Whether it is switched on.
    pub active: bool,
}

/// Every device but the loopback, with the features that work on ESP.
///
/// # Errors
/// Where the kernel does not tell.
pub fn devices() -> io::Result<Vec<Device>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut devices = runtime.block_on(ask())?;
    devices.retain(|device| device.name != "lo");
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(devices)
}

async fn ask() -> io::Result<Vec<Device>> {
    let (connection, mut handle, _) = ethtool::new_connection()?;
    tokio::spawn(connection);
    let mut answers = handle.feature().get(None).execute().await.map_err(io::Error::other)?;
    let mut devices = Vec::new();
    while let Some(answer) = answers.next().await {
        let message = answer.map_err(io::Error::other)?;
        devices.extend(device(&message.payload.nlas));
    }
    Ok(devices)
}

fn device(attributes: &[EthtoolAttr]) -> Option<Device> {
    let names = |bits: &[EthtoolFeatureBit]| -> BTreeSet<String> {
        let of_esp = bits.iter().filter(|bit| bit.value && bit.name.contains("esp"));
        of_esp.map(|bit| bit.name.clone()).collect()
    };
    let (mut name, mut available, mut active) = (None, BTreeSet::new(), BTreeSet::new());
    for attribute in attributes {
        let EthtoolAttr::Feature(attribute) = attribute else { continue };
        match attribute {
            EthtoolFeatureAttr::Header(headers) => {
                name = headers.iter().find_map(|header| match header {
                    EthtoolHeader::DevName(name) => Some(name.clone()),
                    _ => None,
                });
            }
            EthtoolFeatureAttr::Hw(bits) => available = names(bits),
            EthtoolFeatureAttr::Active(bits) => active = names(bits),
            _ => {}
        }
    }
    let name = name?;
    let feature = |name: &String| Feature { active: active.contains(name), name: name.clone() };
    let features = available.union(&active).map(feature).collect();
    let driver = driver(&name);
    Some(Device { name, driver, features })
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
    fn features_of_esp_are_taken_from_what_the_kernel_tells() {
        let bit = |name: &str, value| EthtoolFeatureBit { index: 0, name: name.to_owned(), value };
        let attributes = [
            EthtoolFeatureAttr::Header(vec![EthtoolHeader::DevName("none0".to_owned())]),
            EthtoolFeatureAttr::Hw(vec![bit("esp-hw-offload", true), bit("rx-gro", true)]),
            EthtoolFeatureAttr::Active(vec![bit("tx-esp-segmentation", true)]),
            EthtoolFeatureAttr::NoChange(vec![bit("esp-tx-csum-hw-offload", true)]),
        ];
        let device = device(&attributes.map(EthtoolAttr::Feature)).expect("it has a name");
        let names: Vec<_> = device.features.iter().map(|f| (f.name.as_str(), f.active)).collect();
        assert_eq!(names, [("esp-hw-offload", false), ("tx-esp-segmentation", true)]);
        assert_eq!((device.name.as_str(), device.driver), ("none0", None));
    }
}
