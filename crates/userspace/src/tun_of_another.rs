//! A TUN device that another process reads and writes: this one makes it in its own network namespace.

use esp::queue::Coalesce;
use host::netlink::Netlink;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use tun_rs::{DeviceBuilder, SyncDevice};

/// A TUN device with one queue. It exists as long as a descriptor of it is open in any process.
pub struct Device {
    device: SyncDevice,
    /// The index of the device in its namespace.
    pub index: u32,
    /// The protocols whose super-packets it takes; `None`: its packets have no virtio headers.
    pub offloads: Option<Coalesce>,
}

impl Device {
    /// Makes the device in the network namespace of the calling thread, sets it up, and gives it addresses. Its
    /// descriptor is in nonblocking mode.
    ///
    /// # Errors
    /// If the system refuses, which it does without CAP_NET_ADMIN in the namespace.
    pub fn create(name: &str, mtu: u16, addresses: &[IpAddr]) -> io::Result<Self> {
        let device = build(name, mtu, true).or_else(|_| build(name, mtu, false))?;
        device.set_nonblocking(true)?;
        let mut netlink = Netlink::open()?;
        let index = netlink.link_index(name)?.ok_or(io::ErrorKind::NotFound)?;
        addresses.iter().try_for_each(|address| netlink.add_address(index, *address))?;
        let (tcp, udp) = (device.tcp_gso(), device.udp_gso());
        Ok(Self { device, index, offloads: tcp.then_some(Coalesce { tcp, udp }) })
    }
}

fn build(name: &str, mtu: u16, offload: bool) -> io::Result<SyncDevice> {
    DeviceBuilder::new().name(name).mtu(mtu).offload(offload).enable(true).build_sync()
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
