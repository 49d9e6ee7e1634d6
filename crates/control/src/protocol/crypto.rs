//! Answers about the crypto facility.

use serde::{Deserialize, Serialize};

/// The state of the crypto facility, after [`Command::Crypto`](super::Command::Crypto) and
/// [`Command::CryptoSet`](super::Command::CryptoSet).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CryptoState {
    /// In AIX's order.
    pub tunables: Vec<Tunable>,
    /// The file of those that were set for good.
    pub file: String,
    /// The provider of each function.
    pub functions: Vec<Served>,
    /// SAs whose cipher has changed with this command.
    #[serde(default)]
    pub changed_sas: usize,
}

/// A setting of the crypto facility.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunable {
    /// `nx_enabled`, `min_sz` or `in_core_enabled`.
    pub name: String,
    /// The value in force.
    pub value: u64,
    /// The value of `vpnd.toml`, or the built-in default.
    pub default: u64,
    /// The value that was set with `--persist`; `null`: none.
    pub persistent: Option<u64>,
    /// The effect that it has in this implementation.
    pub note: String,
}

/// A cryptographic function of the data plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// As in `AES-GCM-256`.
    pub function: String,
    /// `aws-lc`, `ring` or `portable`.
    pub provider: String,
    /// `hardware` or `software`.
    pub place: String,
    /// The CPU's instructions that are used.
    pub instructions: Vec<String>,
    /// The reason why it is not the provider that is wanted.
    pub note: Option<String>,
}

/// Work by function and place, after [`Command::CryptoStats`](super::Command::CryptoStats).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CryptoStats {
    /// The age of the counters in milliseconds: the time since the daemon's start.
    pub milliseconds: u64,
    /// The data plane first, then IKE.
    pub rows: Vec<FunctionWork>,
}

/// The work of one function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionWork {
    /// `esp` (and AH), `ike`, or `engine`: requests that went to the engine, in the column `software`.
    pub user: String,
    /// As in `AES-GCM-256`.
    pub function: String,
    /// `encrypt`, `decrypt`; for IKE `derive`, `generate`, `agree`, `sign` or `verify`.
    pub operation: String,
    /// Work done by CPU instructions that are made for it.
    pub hardware: Amount,
    /// Work done in software.
    pub software: Amount,
    /// Work done in the kernel.
    pub kernel: Amount,
    /// Work done in the network card.
    pub nic: Amount,
}

impl FunctionWork {
    fn is_of_same_work(&self, other: &Self) -> bool {
        (&self.user, &self.function, &self.operation)
            == (&other.user, &other.function, &other.operation)
    }
}

/// An amount of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Packets, for IKE operations.
    pub operations: u64,
    /// Octets of inner packets; `null` for IKE.
    pub octets: Option<u64>,
}

impl CryptoState {
    /// A tunable by its name.
    pub fn tunable(&self, name: &str) -> Option<&Tunable> {
        self.tunables.iter().find(|tunable| tunable.name == name)
    }
}

impl CryptoStats {
    /// The work since an earlier answer of the same daemon.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            milliseconds: self.milliseconds.saturating_sub(earlier.milliseconds),
            rows: self
                .rows
                .iter()
                .map(|row| {
                    let Some(old) = earlier.rows.iter().find(|old| old.is_of_same_work(row)) else {
                        return row.clone();
                    };
                    FunctionWork {
                        hardware: row.hardware.since(old.hardware),
                        software: row.software.since(old.software),
                        kernel: row.kernel.since(old.kernel),
                        nic: row.nic.since(old.nic),
                        ..row.clone()
                    }
                })
                .filter(|row| {
                    let columns = [row.hardware, row.software, row.kernel, row.nic];
                    columns.iter().any(|amount| amount.operations > 0)
                })
                .collect(),
        }
    }
}

impl Amount {
    fn since(self, earlier: Self) -> Self {
        let octets = self.octets.map(|o| o.saturating_sub(earlier.octets.unwrap_or(0)));
        Self { operations: self.operations.saturating_sub(earlier.operations), octets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_is_what_was_done_in_between() {
        let amount = |operations| Amount { operations, octets: Some(operations * 100) };
        let row = |function: &str, hardware, software| FunctionWork {
            user: "esp".to_owned(),
            function: function.to_owned(),
            operation: "encrypt".to_owned(),
            hardware: amount(hardware),
            software: amount(software),
            kernel: amount(0),
            nic: amount(0),
        };
        let earlier = CryptoStats { milliseconds: 100, rows: vec![row("a", 5, 0), row("b", 7, 1)] };
        let now = CryptoStats {
            milliseconds: 350,
            rows: vec![row("a", 5, 3), row("b", 7, 1), row("c", 1, 0)],
        };
        let rows = vec![row("a", 0, 3), row("c", 1, 0)];
        assert_eq!(now.since(&earlier), CryptoStats { milliseconds: 250, rows });
    }
}
