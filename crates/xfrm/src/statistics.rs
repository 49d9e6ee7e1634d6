//! The XFRM statistics of a whole network namespace: packets that the kernel has dropped, by reason.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

/// A reason for which the kernel drops packets (linux/snmp.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistic {
    /// Its name in `/proc/net/xfrm_stat`.
    pub name: &'static str,
    /// The meaning, in one sentence.
    pub explanation: &'static str,
}

impl Statistic {
    /// All that are known.
    pub const ALL: &[Self] = &[
        of("XfrmInError", "arrived, and failed for a reason that has no counter of its own"),
        of(
            "XfrmInBufferError",
            "arrived, and there was no memory for it, or it passed too many SAs",
        ),
        of("XfrmInHdrError", "arrived with a broken ESP, AH or IP header"),
        of(
            "XfrmInNoStates",
            "arrived with an SPI that no SA has: one that has ended, or the peer's view is out of date",
        ),
        of(
            "XfrmInStateProtoError",
            "arrived, and its integrity check failed: wrong keys, or forged or damaged on the way",
        ),
        of(
            "XfrmInStateModeError",
            "arrived, and what was inside is not of the SA's mode or address family",
        ),
        of("XfrmInStateSeqError", "arrived a second time, or too late for the replay window"),
        of("XfrmInStateExpired", "arrived on an SA whose lifetime is over"),
        of(
            "XfrmInStateMismatch",
            "arrived on an SA of the other encapsulation: in UDP, or natively",
        ),
        of("XfrmInStateInvalid", "arrived on an SA that is being removed or not ready"),
        of(
            "XfrmInTmplMismatch",
            "arrived by an SA that its policy does not want for such traffic, or in the clear where an SA is wanted",
        ),
        of("XfrmInNoPols", "arrived by an SA, and no policy allows such traffic"),
        of(
            "XfrmInPolBlock",
            "arrived, and its policy blocks: the tunnel is down, or its address family is off (vpnctl family)",
        ),
        of("XfrmInPolError", "arrived, and its policy could not be evaluated"),
        of(
            "XfrmOutError",
            "was to be sent, and failed for a reason that has no counter of its own",
        ),
        of(
            "XfrmOutBundleGenError",
            "was to be sent, and its way through the SA could not be made: often there is no route",
        ),
        of(
            "XfrmOutBundleCheckError",
            "was to be sent, and its way through the SA is no longer valid",
        ),
        of(
            "XfrmOutNoStates",
            "was to be sent, and there was no SA: it asks for the tunnel, if that is on demand",
        ),
        of("XfrmOutStateProtoError", "was to be sent, and its encryption failed"),
        of(
            "XfrmOutStateModeError",
            "was to be sent, and the SA's mode could not take it: it is too long and may not be cut",
        ),
        of("XfrmOutStateSeqError", "was to be sent on an SA whose sequence numbers are used up"),
        of("XfrmOutStateExpired", "was to be sent on an SA whose lifetime is over"),
        of(
            "XfrmOutPolBlock",
            "was to be sent, and its policy blocks: the tunnel is down, or its address family is off (vpnctl family)",
        ),
        of("XfrmOutPolDead", "was to be sent, and its policy was being removed"),
        of("XfrmOutPolError", "was to be sent, and its policy could not be evaluated"),
        of("XfrmFwdHdrError", "was to be forwarded with a broken header"),
        of("XfrmOutStateInvalid", "was to be sent on an SA that is being removed or not ready"),
        of("XfrmAcquireError", "was to start a tunnel, and no key management daemon listened"),
        of("XfrmOutStateDirError", "was to be sent on an SA that only receives"),
        of("XfrmInStateDirError", "arrived on an SA that only sends"),
        of("XfrmInIptfsError", "arrived on an SA of IP-TFS with a broken aggregation"),
        of("XfrmOutNoQueueSpace", "was to be sent on an SA of IP-TFS whose queue was full"),
    ];
}

const fn of(name: &'static str, explanation: &'static str) -> Statistic {
    Statistic { name, explanation }
}

/// The packets dropped in the calling thread's network namespace, for any program, since the namespace was made. Empty
/// if the kernel does not count.
pub fn statistics() -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/xfrm_stat").unwrap_or_default();
    read(&text)
}

fn read(text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|line| {
            let (name, count) = line.split_once(char::is_whitespace)?;
            Some((name.to_owned(), count.trim().parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read() {
        let text = "XfrmInError             \t0\nXfrmInNoStates          \t17\nbroken\nXfrmNew x\n";
        let expected = [("XfrmInError".to_owned(), 0), ("XfrmInNoStates".to_owned(), 17)];
        assert_eq!(read(text), BTreeMap::from(expected));
    }

    #[test]
    fn every_counter_of_this_kernel_is_explained() {
        let known: Vec<_> = Statistic::ALL.iter().map(|s| s.name).collect();
        for name in statistics().keys() {
            assert!(known.contains(&name.as_str()), "{name}");
        }
    }
}
