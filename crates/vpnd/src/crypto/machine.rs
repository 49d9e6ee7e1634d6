//! This machine's support for cryptography, and the part of it that a daemon uses.

use super::kernel::{self, Registered};
use super::of_ike;
use super::service::served;
use ::crypto::{Cpu, CryptoProviders, Function, HIDING, Processor, Provider};
use control::protocol::{CryptoState, Served, Tunable};
use serde::Serialize;
use xfrm::nic::{self, Device};

/// The answer to `vpnctl crypto info`.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor.
    pub cpu: Processor,
    /// The functions, each with its provider and its acceleration.
    pub functions: Vec<Capability>,
    /// The functions of IKE.
    pub ike: Vec<Capability>,
    /// The kernel's algorithms; empty where it does not tell.
    pub kernel: Vec<Registered>,
    /// Network devices; empty where the kernel does not tell.
    pub devices: Vec<Device>,
    /// The daemon's tunables; `null`: no daemon answers, and functions are those of the default configuration.
    pub tunables: Option<Vec<Tunable>>,
    /// Remarks about missing or unusual support.
    pub remarks: Vec<String>,
}

/// A cryptographic function.
#[derive(Clone, Debug, Serialize)]
pub struct Capability {
    /// This CPU has instructions for the function, and a provider uses them.
    pub accelerated: bool,
    /// The provider that serves the function.
    #[serde(flatten)]
    pub served: Served,
}

impl Machine {
    /// Looks at this machine; `daemon` is what a running daemon has told.
    pub fn look(daemon: Option<CryptoState>) -> Self {
        let cpu = Cpu::detect();
        let mut remarks = Vec::new();
        let kernel = kernel::registered().unwrap_or_else(|error| {
            remarks.push(format!("what the kernel offers cannot be found out: {error}"));
            Vec::new()
        });
        let devices = nic::devices().unwrap_or_else(|error| {
            remarks.push(format!("what the network cards offer cannot be found out: {error}"));
            Vec::new()
        });
        let hidden: Vec<_> = cpu.hidden().collect();
        if !hidden.is_empty() {
            remarks.push(format!("{HIDING} keeps AWS-LC from using {}", hidden.join(", ")));
        }
        let (functions, tunables) = match daemon {
            Some(state) => (state.functions, Some(state.tunables)),
            None => (served(&CryptoProviders::default()), None),
        };
        let capabilities = functions.iter().cloned().map(|served| Capability {
            accelerated: Function::all().any(|function| {
                function.to_string() == served.function
                    && Provider::ALL.iter().any(|p| !cpu.instructions(*p, function).is_empty())
            }),
            served,
        });
        let capabilities = capabilities.collect();
        let unused: Vec<_> = cpu.unused().collect();
        if !unused.is_empty() {
            remarks.push(format!(
                "this CPU has {}, which no provider of this version uses",
                unused.join(", ")
            ));
        }
        let ike = of_ike::functions(&cpu, &functions);
        let cpu = Processor::look();
        Self { cpu, functions: capabilities, ike, kernel, devices, tunables, remarks }
    }
}

/// The title of a plot of this machine's ciphers.
pub fn title() -> String {
    let Processor { model, architecture, .. } = Processor::look();
    format!("Ciphers of vpnd on {}", model.as_deref().unwrap_or(architecture))
}
