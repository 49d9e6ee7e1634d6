//! Questions about devices and routes, for others than the userspace plane.

#![forbid(unsafe_code)]

use crate::netlink::Netlink;
use host_facts::Prefix;
use std::io;
use std::net::IpAddr;

/// Asks the kernel; belongs to the network namespace of the thread that opened it.
pub struct Routes(Netlink);

impl Routes {
    /// Opens a socket in the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        Netlink::open().map(Self)
    }

    /// Index of the device of that name.
    pub fn index(&mut self, name: &str) -> io::Result<Option<u32>> {
        self.0.link_index(name)
    }

    /// Index and name of the device by which unmarked packets to `remote` leave.
    pub fn egress(&mut self, remote: IpAddr) -> io::Result<Option<(u32, String)>> {
        let Some(index) = self.0.egress(remote, 0)? else { return Ok(None) };
        Ok(Some((index, self.0.link(index)?.0)))
    }

    /// Returns `true` if a route leads packets with that mark to an address.
    pub fn lead_to(&mut self, address: IpAddr, mark: u32) -> bool {
        // The kernel's errors for a route that leads nowhere, and for those that drop (ip-route(8): blackhole,
        // prohibit).
        let nowhere = [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EINVAL, libc::EACCES];
        match self.0.egress(address, mark) {
            Ok(_) => true,
            Err(error) => !error.raw_os_error().is_some_and(|errno| nowhere.contains(&errno)),
        }
    }

    /// The addresses of this host.
    pub fn own(&mut self) -> io::Result<Vec<IpAddr>> {
        Ok(self.0.addresses()?.into_iter().collect())
    }

    /// The addresses of this host, and the networks that it is attached to.
    pub fn networks(&mut self) -> io::Result<Vec<Prefix>> {
        self.0.networks()
    }
}

/// Names devices; belongs to the network namespace of the thread that asks first.
#[derive(Default)]
pub struct Devices(Option<Routes>);

impl Devices {
    /// The name of the device of that index; where there is none, the index.
    pub fn name(&mut self, index: u32) -> String {
        if self.0.is_none() {
            self.0 = Routes::open().ok();
        }
        let name = self.0.as_mut().and_then(|routes| routes.0.link(index).ok());
        name.map(|(name, _)| name).filter(|name| !name.is_empty()).unwrap_or(index.to_string())
    }
}
