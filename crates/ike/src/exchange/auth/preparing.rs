//! An IKE_AUTH request whose peer names the traffic of its Child SA: the answer waits until the plane is prepared for
//! that.

use super::responder::{self, Answer, path_of, refuse, still_there};
use crate::context::Context;
use crate::exchange::child_sa::{self, Asker};
use crate::exchange::half_open::{Begun, HalfOpen, Preparing, Request, Stage, Unproven};
use crate::proof::Evidence;
use crate::wire::parts::Parts;
use crate::wire::payload::Payload;
use policy::IkeTunnel;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The longest wait for the plane. Peers give up sooner.
const PREPARE_FOR: Duration = Duration::from_secs(300);

/// Establishes the IKE SA and the Child SA that is asked for, as soon as the plane is prepared.
pub(super) fn establish(
    cx: &mut Context<'_>,
    mut begun: Begun,
    unproven: Box<Unproven>,
    request: Request,
    tunnel: Arc<IkeTunnel>,
    payloads: Vec<Payload>,
    proof: Evidence,
) -> Answer {
    let path = path_of(cx, &begun, &request);
    let asker = Asker { tunnel: &tunnel, path: &path };
    let Some(child) = child_sa::unprepared(asker, cx, &Parts::of(&payloads)) else {
        return responder::establish(cx, begun, *unproven, &request, tunnel, &payloads, &proof);
    };
    begun.expires_at = begun.expires_at.max(cx.now + PREPARE_FOR);
    let preparing = Box::new(Preparing { tunnel, payloads, request, proof, child });
    let stage = Stage::Preparing(unproven, preparing);
    Answer::Waits(Box::new(HalfOpen { begun, stage }))
}

/// Goes on with an IKE_AUTH request, as the plane may be prepared now. The addresses are those of its answer; `Err`:
/// the half-open IKE SA does not wait for the plane.
pub(crate) fn resume(
    cx: &mut Context<'_>,
    half: HalfOpen,
) -> Result<((SocketAddr, SocketAddr), Answer), Box<HalfOpen>> {
    let HalfOpen { begun, stage } = half;
    let (unproven, preparing) = match stage {
        Stage::Preparing(unproven, preparing) => (unproven, preparing),
        stage => return Err(Box::new(HalfOpen { begun, stage })),
    };
    let Preparing { tunnel, payloads, request, proof, child: _child } = *preparing;
    let ends = request.ends;
    let answer = match still_there(&unproven, &tunnel) {
        Ok(tunnel) => establish(cx, begun, unproven, request, tunnel, payloads, proof),
        Err(rejection) => refuse(cx, begun, &unproven, request, &rejection),
    };
    Ok((ends, answer))
}
