//! An IKE_AUTH request whose peer names the traffic of its Child SA: the answer waits until the plane is prepared for
//! that.

use super::responder::{self, Answer, path_of, refuse, still_there};
use crate::context::Context;
use crate::exchange::child_sa::{self, Asker};
use crate::exchange::half_open::{Begun, HalfOpen, Preparing, Proven, Stage, Unproven};
use crate::wire::parts::Parts;
use std::net::SocketAddr;
use std::time::Duration;

/// The longest wait for the plane. Peers give up sooner.
const PREPARE_FOR: Duration = Duration::from_secs(300);

/// Establishes the IKE SA and the Child SA that is asked for, as soon as the plane is prepared.
pub(super) fn establish(
    cx: &mut Context<'_>,
    mut begun: Begun,
    unproven: Box<Unproven>,
    proven: Proven,
) -> Answer {
    let path = path_of(cx, &begun, &proven.request);
    let asker = Asker { tunnel: &proven.tunnel, path: &path };
    let Some(child) = child_sa::unprepared(asker, cx, &Parts::of(&proven.payloads)) else {
        return responder::establish(cx, begun, *unproven, proven);
    };
    begun.expires_at = begun.expires_at.max(cx.now + PREPARE_FOR);
    let stage = Stage::Preparing(unproven, Box::new(Preparing { proven, child }));
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
    let Preparing { proven, child: _child } = *preparing;
    let ends = proven.request.ends;
    let answer = match still_there(&unproven, &proven.tunnel) {
        Ok(tunnel) => establish(cx, begun, unproven, Proven { tunnel, ..proven }),
        Err(rejection) => refuse(cx, begun, &unproven, proven.request, &rejection),
    };
    Ok((ends, answer))
}
