//! Tunnels and their SAs.

use super::{encapsulation_name, mode_name};
use crate::why::{down, unanswered, waits};
use control::protocol::{Activation, Change, Child, ChildSa, FailureInfo, IkeSa, Narrowed, Tunnel};
use ike::failure::Failure;
use ike::quantum::QuantumSafety;
use ike::status::{ChildSaStatus, ChildStatus, IkeSaStatus, IkeStatus};
use policy::Selector;
use std::time::{Duration, SystemTime};

/// Shows a failed negotiation.
pub fn failure(failure: &Failure) -> FailureInfo {
    FailureInfo {
        kind: failure.kind.name().to_owned(),
        message: diagnosis::line::failure(failure),
        seconds_ago: None,
    }
}

/// Shows how the start of a tunnel ended.
pub fn activation(activation: vpn::Activation) -> Activation {
    let failure = activation.outcome.as_ref().err().map(failure);
    Activation { name: activation.name, up: failure.is_none(), failure }
}

/// Shows a phase 1 tunnel with its children, without the policy's settings. `now` is the time of the status.
pub fn tunnel(status: &IkeStatus, now: SystemTime) -> Tunnel {
    Tunnel {
        name: status.name.clone(),
        number: 0,
        state: status.state.name().to_owned(),
        local_id: status.local_id.clone(),
        remote_id: status.remote_id.clone(),
        local_address: status.local_address,
        remote_address: status.remote_address,
        peer_product: status.product.as_ref().map(ToString::to_string),
        ike_sa: status.sa.as_ref().map(ike_sa),
        unanswered: status.unanswered.as_ref().map(|request| unanswered(request, now)),
        children: status.children.iter().map(|c| child(c, now)).collect(),
        last_failure: last_failure(status.last_failure.as_ref()),
        down: status.ended.as_ref().map(|ended| down(ended, &status.name, now)),
        policy: None,
        keys_exported_to: None,
    }
}

fn ike_sa(sa: &IkeSaStatus) -> IkeSa {
    IkeSa {
        initiator: sa.initiator,
        initiator_spi: sa.initiator_spi.to_string(),
        responder_spi: sa.responder_spi.to_string(),
        local: sa.local,
        remote: sa.remote,
        nat_local: sa.nat_local,
        nat_remote: sa.nat_remote,
        suite: sa.suite.map(|suite| suite.to_string()).unwrap_or_default(),
        ppk: sa.ppk,
        quantum_safe: sa.quantum_safety == Some(QuantumSafety::Safe),
        not_quantum_safe: sa.quantum_safety.and_then(not_quantum_safe),
        resumptions: sa.resumptions,
        established_seconds: sa.established_for.map(|d| d.as_secs()),
        rekey_in_seconds: sa.rekey_in.map(|d| d.as_secs()),
        expires_in_seconds: sa.expires_in.map(|d| d.as_secs()),
        rekeys: sa.rekeys,
    }
}

fn not_quantum_safe(safety: QuantumSafety) -> Option<String> {
    (safety != QuantumSafety::Safe).then(|| safety.to_string())
}

fn child(child: &ChildStatus, now: SystemTime) -> Child {
    Child {
        name: child.name.clone(),
        number: 0,
        state: child.state.name().to_owned(),
        mode: mode_name(child.mode).to_owned(),
        local: words(&child.local),
        remote: words(&child.remote),
        narrowed: child.narrowed.as_ref().map(narrowed),
        child_sa: child.sa.as_ref().map(child_sa),
        fault: child.fault.clone(),
        waits: child.next.as_ref().map(waits),
        findings: Vec::new(),
        last_failure: last_failure(child.last_failure.as_ref()),
        down: child.ended.as_ref().map(|ended| down(ended, &child.name, now)),
        policy: None,
    }
}

fn words(selectors: &[Selector]) -> Vec<String> {
    selectors.iter().map(ToString::to_string).collect()
}

fn narrowed(narrowed: &ike::status::Narrowed) -> Narrowed {
    let (local, remote) = (words(&narrowed.local), words(&narrowed.remote));
    Narrowed { local, remote, by: narrowed.by.name().to_owned() }
}

fn child_sa(sa: &ChildSaStatus) -> ChildSa {
    ChildSa {
        suite: sa.suite.to_string(),
        quantum_safe: sa.quantum_safety == QuantumSafety::Safe,
        not_quantum_safe: not_quantum_safe(sa.quantum_safety),
        esn: sa.esn,
        encapsulation: encapsulation_name(sa.encapsulation).to_owned(),
        inbound_spi: sa.inbound_spi.to_string(),
        outbound_spi: sa.outbound_spi.to_string(),
        packets_in: sa.packets_in,
        packets_out: sa.packets_out,
        bytes_in: sa.bytes_in,
        bytes_out: sa.bytes_out,
        idle_in_seconds: sa.idle_in.map(|d| d.as_secs()),
        idle_out_seconds: sa.idle_out.map(|d| d.as_secs()),
        refused: sa.refused,
        path_mtu: sa.fit.map(|fit| fit.path_mtu as u64),
        inner_mtu: sa.fit.map(|fit| fit.inner_mtu as u64),
        path_mtu_learned: sa.fit.is_some_and(|fit| fit.learned),
        established_seconds: sa.established_for.as_secs(),
        rekey_in_seconds: sa.rekey_in.map(|d| d.as_secs()),
        expires_in_seconds: sa.expires_in.map(|d| d.as_secs()),
        lifetime_seconds: Some(sa.lifetime.hard.as_secs()),
        lifesize_bytes: sa.lifetime.bytes,
        lifesize_left_bytes: sa.bytes_left,
        overlap_percent: Some(sa.lifetime.overlap_percent),
        rekeys: sa.rekeys,
        placed: Vec::new(),
    }
}

fn last_failure(failure: Option<&(Failure, Duration)>) -> Option<FailureInfo> {
    failure.map(|(failure, ago)| FailureInfo {
        seconds_ago: Some(ago.as_secs()),
        ..self::failure(failure)
    })
}

/// Shows the effect of a new policy on a tunnel.
pub fn change(change: policy::Change) -> Change {
    let policy::Change { tunnel, child, fields, effect } = change;
    let message = match fields.as_slice() {
        [] => effect.to_string(),
        fields => format!("{}: {effect}", fields.join(", ")),
    };
    let fields = fields.into_iter().map(str::to_owned).collect();
    Change { tunnel, child, fields, effect: effect.name().to_owned(), message }
}
