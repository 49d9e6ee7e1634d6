//! Questions about single routes, and about addresses with their devices.

use super::{
    AddressAttribute, AddressMessage, Attachment, IpAddr, Message, NLM_F_DUMP, Netlink, Prefix,
    RouteAttribute, RouteFlags, RouteLookup, RouteMessage, RouteType, io,
};

impl Netlink {
    /// The route that packets with that mark take to an address; `None`: no route leads there, or one that drops.
    ///
    /// # Errors
    /// If the kernel does not answer.
    pub fn look_up_route(&mut self, address: IpAddr, mark: u32) -> io::Result<Option<RouteLookup>> {
        // The kernel's errors for a route that leads nowhere, and for those that drop (ip-route(8): blackhole,
        // prohibit).
        let nowhere = [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EINVAL, libc::EACCES];
        let route = match self.route(address, mark, RouteFlags::FibMatch) {
            Err(e) if e.raw_os_error().is_some_and(|errno| nowhere.contains(&errno)) => {
                return Ok(None);
            }
            outcome => outcome?,
        };
        let Some(route) = route else { return Ok(None) };
        let own = match route.header.kind {
            RouteType::Local => true,
            RouteType::Unicast => false,
            _ => return Ok(None),
        };
        let device = match device_of(&route) {
            Some(index) => self.link(index)?.0,
            // One of several next hops.
            None => String::new(),
        };
        Ok(Some(RouteLookup { device, own, default: route.header.destination_prefix_length == 0 }))
    }

    /// The addresses of this host, each with its network and its device.
    ///
    /// # Errors
    /// If the kernel does not answer.
    pub fn attached(&mut self) -> io::Result<Vec<Attachment>> {
        let answers = self.exchange(Message::GetAddress(AddressMessage::default()), NLM_F_DUMP)?;
        let mut found = Vec::new();
        for answer in answers {
            let Message::NewAddress(message) = answer else { continue };
            let (mut local, mut other) = (None, None);
            for attribute in &message.attributes {
                match attribute {
                    AddressAttribute::Local(address) => local = Some(*address),
                    AddressAttribute::Address(address) => other = Some(*address),
                    _ => {}
                }
            }
            let Some((address, on_link)) = local.or(other).zip(other.or(local)) else { continue };
            let network = Prefix::holding(on_link, message.header.prefix_len);
            let device = self.link(message.header.index)?.0;
            found.push(Attachment { address, network, device });
        }
        Ok(found)
    }
}

fn device_of(route: &RouteMessage) -> Option<u32> {
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    })
}
