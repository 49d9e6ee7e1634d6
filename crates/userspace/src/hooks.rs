//! The plane's calls to its owner.

use esp::plane::Notice;
use floor::port::IkeDatagram;
use std::sync::Arc;

/// The functions by which the plane tells its owner; it calls them on its worker threads, so neither may block.
#[derive(Clone)]
pub struct Hooks {
    /// Takes notices for key management.
    pub notice: Arc<dyn Fn(Notice) + Send + Sync>,
    /// Takes IKE messages.
    pub ike: Arc<dyn Fn(IkeDatagram) + Send + Sync>,
}
