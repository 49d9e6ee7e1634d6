//! The sockets that receive this plane's packets: those on the port of ESP in UDP, and those of ESP and AH without UDP.

use super::raw_sockets::RawSockets;
use esp::plane::PlaneError;
use floor::port::Port;
use std::sync::Arc;

/// The port, and the sockets of ESP and AH without UDP while there is a device.
pub(super) struct Receivers {
    port: Arc<Port>,
    mark: u32,
    raw: Option<Arc<RawSockets>>,
}

impl Receivers {
    /// Receives on a port; packets of other sockets have this mark.
    pub(super) fn on(port: Arc<Port>, mark: u32) -> Self {
        Self { port, mark, raw: None }
    }

    /// As [`on`](Self::on), with sockets that another process has opened.
    pub(super) fn adopt(port: Arc<Port>, mark: u32, raw: Option<Arc<RawSockets>>) -> Self {
        Self { port, mark, raw }
    }

    /// The port of ESP in UDP.
    pub(super) fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// The sockets of ESP and AH without UDP. They are opened when they are needed first: while the kernel has all
    /// tunnels, it would check each of its packets against them in vain.
    pub(super) fn raw(&mut self) -> Result<Arc<RawSockets>, PlaneError> {
        if let Some(raw) = &self.raw {
            return Ok(Arc::clone(raw));
        }
        let raw = Arc::new(RawSockets::open(self.mark)?);
        self.port.follow_spis(|own| raw.sift(own))?;
        self.raw = Some(Arc::clone(&raw));
        Ok(raw)
    }

    /// Lets the sockets of ESP and AH go, which close with the last queue pair.
    pub(super) fn release_raw(&mut self) {
        self.raw = None;
    }

    /// Takes packets with this SPI instead of the kernel. After an error, the SPI is to be disclaimed unless another SA
    /// has it.
    pub(super) fn claim(&self, spi: u32) -> Result<(), PlaneError> {
        self.port.claim(spi)?;
        self.sift()
    }

    /// Leaves packets with this SPI to the kernel again.
    pub(super) fn disclaim(&self, spi: u32) {
        self.port.disclaim(spi);
        if let Err(error) = self.sift() {
            tracing::debug!(%error, "an SPI that is gone still comes to the raw sockets");
        }
    }

    fn sift(&self) -> Result<(), PlaneError> {
        match &self.raw {
            Some(raw) => self.port.follow_spis(|own| raw.sift(own)),
            None => Ok(()),
        }
    }
}
