//! The predicted throughput of a machine with more cores, from the cost of a packet on this one.

/// The cost of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// Processor time of both daemons for one packet delivered, nanoseconds: sealed in one, opened in the other.
    pub packet: f64,
    /// The part that one thread alone must do: the pipeline's reader. 0: none.
    pub serial: f64,
}

/// Packets per second, both directions together, of a gateway that has so many cores to itself and one worker on each.
///
/// A gateway seals the packets of one direction and opens those of the other: `n` cores pay for `2n` seconds of packets
/// in a second, of which each packet takes the cost of sealing it or of opening it. A reader pays for its part of each,
/// on one core, whatever the number of cores is.
pub(super) fn packets_per_second(cost: Cost, cores: usize) -> f64 {
    let all = 2.0 * cores as f64 / (cost.packet * 1e-9);
    match cost.serial > 0.0 {
        true => all.min(2.0 / (cost.serial * 1e-9)),
        false => all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_add_up_until_the_reader_is_busy() {
        let free = Cost { packet: 2_000.0, serial: 0.0 };
        assert_eq!([1, 16].map(|n| packets_per_second(free, n).round()), [1e6, 16e6]);
        let read = Cost { packet: 2_000.0, serial: 500.0 };
        assert_eq!([1, 4, 16].map(|n| packets_per_second(read, n).round()), [1e6, 4e6, 4e6]);
    }
}
