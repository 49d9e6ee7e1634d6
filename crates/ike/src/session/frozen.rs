//! A session in a frozen engine.

use super::liveness::Liveness;
use super::{Children, Ending, Life, Outcome, Reauthentication, Session, Tasks};
use crate::close_reason::CloseReason;
use crate::effect::Lingering;
use crate::frozen::values::{
    addresses, header_spis, meaning, number_of_originator, originator, packet, path, texts, usage,
    write_addresses, write_header_spis, write_packet, write_path, write_texts, write_usage,
};
use crate::policy_index::PolicyIndex;
use crate::resumption::Authentication;
use crate::sa::IkeSa;
use crate::sa::attempt::Attempt;
use crate::sa::child::ChildSa;
use crate::sa::lowest_nonce::LowestNonce;
use crate::sa::mobility::{Doubt, Mobility, SeenAs};
use crate::session_id::SessionId;
use crate::task::Task;
use crate::thawing::{Thawing, write_tunnel};
use crate::wire::header::IkeSpi;
use ::frozen::{Clock, Field, Reader, Unthawable, Writer};
use esp::plane::{SaId, Spi};
use std::collections::BTreeMap;

/// One that is not the policy's any more closes.
const TUNNEL: Field = Field::new(1);
const ATTEMPT: Field = Field::new(2);
const PATH: Field = Field::new(4);
const MOBILITY: Field = Field::new(5);
const REAUTHENTICATE_AT: Field = Field::new(6);
const REAUTHENTICATE_BY: Field = Field::new(7);
const SUCCEEDS: Field = Field::new(8);
const RELIEVES_AT: Field = Field::new(9);
const REPORTED_LOCAL: Field = Field::new(10);
const REPORTED_REMOTE: Field = Field::new(11);
const SAS: Field = Field::new(12);
const CURRENT: Field = Field::new(13);
const CHILDREN: Field = Field::new(14);
const TASKS: Field = Field::new(15);
const DELAYED: Field = Field::new(16);
const LAST_HEARD: Field = Field::new(17);
const KEEPALIVE_AT: Field = Field::new(18);
const PACKETS: Field = Field::new(19);
const LINGERING: Field = Field::new(20);
const ESTABLISHED_AT: Field = Field::new(21);
const BEGUN_AT: Field = Field::new(22);
const ORIGINATOR: Field = Field::new(23);
const LOWEST_NONCE: Field = Field::new(24);
const REKEYS: Field = Field::new(25);
const HAS_SERVED: Field = Field::new(26);
const TEMPORARY_FAILURES: Field = Field::new(27);
const CLOSING: Field = Field::new(28);
const ENDING: Field = Field::new(29);
const FAILED: Field = Field::new(30);
const RECONNECT: Field = Field::new(31);
const AUTHENTICATION: Field = Field::new(32);

impl Session {
    pub fn freeze(&self, to: &mut Writer<'_>, clock: &Clock, policy: &PolicyIndex) {
        let Self {
            tunnel,
            path,
            mobility,
            reauthentication,
            authentication,
            reported,
            attempt,
            sas,
            current,
            children,
            tasks,
            liveness,
            packets,
            lingering,
            established_at,
            begun_at,
            originator,
            lowest_nonce,
            rekeys,
            has_served,
            temporary_failures,
            // Only while a request is being answered.
            deleted: _,
            life,
            outcome,
        } = self;
        let Reauthentication { at, by, succeeds, relieves_at } = reauthentication;
        // Hints about obstacles come again with the next message.
        let Liveness { last_heard, keepalive_at, .. } = liveness;
        // Of a session that is over.
        let Outcome { ending, lost: _, failed, reconnect } = outcome;
        to.record(TUNNEL, |to| write_tunnel(to, tunnel, policy));
        to.record_if_any(ATTEMPT, attempt.as_ref(), |to, attempt| {
            attempt.freeze(to, clock, policy)
        });
        to.record(PATH, |to| write_path(to, path));
        to.record(MOBILITY, |to| write_mobility(to, mobility));
        to.moment_if_any(REAUTHENTICATE_AT, clock, *at);
        to.moment_if_any(REAUTHENTICATE_BY, clock, *by);
        to.number(SUCCEEDS, succeeds.map_or(0, |SessionId(id)| id));
        to.moment_if_any(RELIEVES_AT, clock, *relieves_at);
        to.endpoint(REPORTED_LOCAL, reported.0);
        to.endpoint(REPORTED_REMOTE, reported.1);
        to.list(SAS, sas, |to, sa| sa.freeze(to, clock));
        to.number(CURRENT, current.0);
        to.list(CHILDREN, children.iter(), |to, child| child.freeze(to, clock));
        to.list(TASKS, tasks.iter(), write_task);
        to.list(DELAYED, tasks.delayed(), |to, (at, task)| {
            to.moment(AT, clock, *at);
            write_task(to, task);
        });
        to.moment(LAST_HEARD, clock, *last_heard);
        to.moment(KEEPALIVE_AT, clock, *keepalive_at);
        to.list(PACKETS, packets, |to, (name, packet)| {
            to.text(NAME, name);
            to.record(PACKET, |to| write_packet(to, packet));
        });
        to.list(LINGERING, lingering, |to, lingering| write_lingering(to, clock, lingering));
        to.moment_if_any(ESTABLISHED_AT, clock, *established_at);
        to.moment(BEGUN_AT, clock, *begun_at);
        to.number(ORIGINATOR, number_of_originator(*originator));
        to.octets(LOWEST_NONCE, &lowest_nonce.0);
        to.number(REKEYS, *rekeys);
        to.flag(HAS_SERVED, *has_served);
        to.number(TEMPORARY_FAILURES, *temporary_failures);
        if let Life::Closing(reason) = life {
            to.number(CLOSING, reason.number());
        }
        to.number(ENDING, ending.number());
        write_texts(to, FAILED, failed);
        write_texts(to, RECONNECT, reconnect);
        let authentication = authentication.as_ref();
        to.record_if_any(AUTHENTICATION, authentication, |to, a| a.freeze(to, clock, policy));
    }

    pub fn thaw(mut from: Reader<'_>, cx: Thawing<'_>) -> Result<Self, Unthawable> {
        let clock = &cx.clock;
        let tunnel = cx.tunnel(from.record(TUNNEL, "a tunnel")?)?;
        let attempt = from.record_if_any(ATTEMPT, "an attempt")?;
        let attempt = attempt.map(|from| Attempt::thaw(from, cx)).transpose()?;
        let path = path(from.record(PATH, "a path")?)?;
        let mobility = mobility(from.record(MOBILITY, "a session's mobility")?)?;
        let reauthentication = Reauthentication {
            at: from.moment_if_any(REAUTHENTICATE_AT, clock)?,
            by: from.moment_if_any(REAUTHENTICATE_BY, clock)?,
            succeeds: Some(from.number(SUCCEEDS)?).filter(|id| *id != 0).map(SessionId),
            relieves_at: from.moment_if_any(RELIEVES_AT, clock)?,
        };
        let reported = (from.endpoint(REPORTED_LOCAL)?, from.endpoint(REPORTED_REMOTE)?);
        let sas = from.list(SAS, "an IKE SA")?.map(|from| IkeSa::thaw(from, cx));
        let sas: Vec<IkeSa> = sas.collect::<Result<_, Unthawable>>()?;
        let current = IkeSpi(from.number(CURRENT)?);
        // An attempt stands alone: it becomes the first IKE SA in use.
        let is_there = match &attempt {
            Some(attempt) => sas.is_empty() && attempt.sa().local_spi == current,
            None => sas.iter().any(|sa| sa.local_spi == current),
        };
        if !is_there {
            return Err(from.invalid(CURRENT));
        }
        let mut children = Children::default();
        for from in from.list(CHILDREN, "a Child SA")? {
            children.push(ChildSa::thaw(from, cx)?);
        }
        let mut tasks = Tasks::default();
        for mut from in from.list(TASKS, "a task")? {
            tasks.push_back(task(&mut from)?);
            from.end()?;
        }
        for mut from in from.list(DELAYED, "a delayed task")? {
            let at = from.moment(AT, clock)?;
            tasks.delay(at, task(&mut from)?);
            from.end()?;
        }
        let mut liveness = Liveness::new(from.moment(LAST_HEARD, clock)?);
        liveness.keepalive_at = from.moment(KEEPALIVE_AT, clock)?;
        let packets = from.list(PACKETS, "a packet")?.map(|mut from| {
            let name = from.text(NAME)?.to_owned();
            let packet = packet(from.record(PACKET, "a packet")?)?;
            from.end()?;
            Ok((name, packet))
        });
        let packets: BTreeMap<_, _> = packets.collect::<Result<_, Unthawable>>()?;
        let lingering = from.list(LINGERING, "a lingering SA")?;
        let lingering =
            lingering.map(|from| lingering_of(from, clock)).collect::<Result<_, Unthawable>>()?;
        let established_at = from.moment_if_any(ESTABLISHED_AT, clock)?;
        let begun_at = from.moment(BEGUN_AT, clock)?;
        let originator = originator(&mut from, ORIGINATOR)?;
        let lowest_nonce = LowestNonce(from.array(LOWEST_NONCE)?);
        let (rekeys, has_served) = (from.number(REKEYS)?, from.flag(HAS_SERVED)?);
        let temporary_failures = from.number(TEMPORARY_FAILURES)?;
        let life = match from.number(CLOSING)? {
            0 => Life::Running,
            number => match CloseReason::of_number(number) {
                Some(reason) => Life::Closing(reason),
                None => return Err(from.invalid(CLOSING)),
            },
        };
        let outcome = Outcome {
            ending: meaning(&mut from, ENDING, Ending::of_number)?,
            lost: Vec::new(),
            failed: texts(&mut from, FAILED)?,
            reconnect: texts(&mut from, RECONNECT)?,
        };
        let authentication = match from.record_if_any(AUTHENTICATION, "a session's proofs")? {
            None => None,
            Some(from) => Some(Box::new(Authentication::thaw(from, cx)?)),
        };
        from.end()?;
        Ok(Self {
            tunnel,
            path,
            mobility,
            reauthentication,
            authentication,
            reported,
            attempt,
            sas,
            current,
            children,
            tasks,
            liveness,
            packets,
            lingering,
            established_at,
            begun_at,
            originator,
            lowest_nonce,
            rekeys,
            has_served,
            temporary_failures,
            deleted: None,
            life,
            outcome,
        })
    }

    /// The lingering inbound SAs, by SPI.
    pub fn lingering_spis(&self) -> impl Iterator<Item = Spi> {
        self.lingering.iter().map(|lingering| lingering.spi)
    }
}

// ---- parts

const SUPPORTED: Field = Field::new(1);
const PEER: Field = Field::new(2);
const TOLD: Field = Field::new(3);
const MOVES: Field = Field::new(4);
const REFUSALS: Field = Field::new(5);
const SEEN_SPIS: Field = Field::new(6);
const SEEN_HASH: Field = Field::new(7);
const CHOSEN_LOCAL: Field = Field::new(8);
const CHOSEN_REMOTE: Field = Field::new(9);
const VERIFIED: Field = Field::new(10);
const ALTERNATIVES: Field = Field::new(11);

fn write_mobility(to: &mut Writer<'_>, mobility: &Mobility) {
    let Mobility { supported, peer, told, moves, refusals, seen_as, chosen, doubt } = mobility;
    to.flag(SUPPORTED, *supported);
    write_addresses(to, PEER, peer);
    write_addresses(to, TOLD, told);
    to.number(MOVES, *moves);
    to.number(REFUSALS, *refusals);
    if let Some(SeenAs { spis, hash }) = seen_as {
        to.record(SEEN_SPIS, |to| write_header_spis(to, *spis));
        to.octets(SEEN_HASH, hash);
    }
    if let Some((local, remote)) = chosen {
        to.address(CHOSEN_LOCAL, *local);
        to.address(CHOSEN_REMOTE, *remote);
    }
    if let Some(doubt) = doubt {
        let Doubt { verified, alternatives } = &**doubt;
        to.record(VERIFIED, |to| write_path(to, verified));
        to.list(ALTERNATIVES, alternatives, write_path);
    }
}

fn mobility(mut from: Reader<'_>) -> Result<Mobility, Unthawable> {
    let supported = from.flag(SUPPORTED)?;
    let peer = addresses(&mut from, PEER)?.into();
    let told = addresses(&mut from, TOLD)?.into();
    let (moves, refusals) = (from.number(MOVES)?, from.number(REFUSALS)?);
    let seen_as = match from.record_if_any(SEEN_SPIS, "SPIs")? {
        None => None,
        Some(spis) => Some(SeenAs { spis: header_spis(spis)?, hash: from.array(SEEN_HASH)? }),
    };
    let chosen = match from.address_if_any(CHOSEN_LOCAL)? {
        None => None,
        Some(local) => Some((local, from.address(CHOSEN_REMOTE)?)),
    };
    let verified = from.record_if_any(VERIFIED, "a path")?;
    let alternatives =
        from.list(ALTERNATIVES, "a path")?.map(path).collect::<Result<_, Unthawable>>()?;
    let doubt = match verified {
        None => None,
        Some(verified) => Some(Box::new(Doubt { verified: path(verified)?, alternatives })),
    };
    from.end()?;
    Ok(Mobility { supported, peer, told, moves, refusals, seen_as, chosen, doubt })
}

/// Of a delayed task.
const AT: Field = Field::new(1);
const KIND: Field = Field::new(2);
const CHILD: Field = Field::new(3);
const SPI: Field = Field::new(4);

const NAME: Field = Field::new(1);
const PACKET: Field = Field::new(2);

fn write_task(to: &mut Writer<'_>, task: &Task) {
    let (kind, name, spi): (u8, &str, u64) = match task {
        Task::CreateChild(name) => (1, name, 0),
        Task::RekeyChild(spi) => (2, "", spi.0.into()),
        Task::DeleteChild(spi) => (3, "", spi.0.into()),
        Task::RekeyIke(spi) => (4, "", spi.0),
        Task::DeleteIke(spi) => (5, "", spi.0),
        Task::Liveness => (6, "", 0),
        Task::UpdateAddresses => (7, "", 0),
        Task::VerifyAddress => (8, "", 0),
        Task::TellAddresses => (9, "", 0),
        Task::AskTicket => (10, "", 0),
    };
    to.number(KIND, kind);
    to.text(CHILD, name);
    to.number(SPI, spi);
}

fn task(from: &mut Reader<'_>) -> Result<Task, Unthawable> {
    let kind: u8 = from.number(KIND)?;
    let (name, spi) = (from.text(CHILD)?, from.number::<u64>(SPI)?);
    let child = |from: &Reader<'_>| u32::try_from(spi).map(Spi).map_err(|_| from.invalid(SPI));
    Ok(match kind {
        1 => Task::CreateChild(name.to_owned()),
        2 => Task::RekeyChild(child(from)?),
        3 => Task::DeleteChild(child(from)?),
        4 => Task::RekeyIke(IkeSpi(spi)),
        5 => Task::DeleteIke(IkeSpi(spi)),
        6 => Task::Liveness,
        7 => Task::UpdateAddresses,
        8 => Task::VerifyAddress,
        9 => Task::TellAddresses,
        10 => Task::AskTicket,
        _ => return Err(from.invalid(KIND)),
    })
}

const UNTIL: Field = Field::new(1);
const SA: Field = Field::new(2);
const LINGERING_SPI: Field = Field::new(3);
const HEIR: Field = Field::new(4);
const COUNT: Field = Field::new(5);

fn write_lingering(to: &mut Writer<'_>, clock: &Clock, lingering: &Lingering) {
    let Lingering { until, sa, spi, heir } = *lingering;
    to.moment(UNTIL, clock, until);
    to.number(SA, sa.0);
    to.number(LINGERING_SPI, spi.0);
    if let Some((heir, count)) = heir {
        to.number_if_any(HEIR, Some(heir.0));
        to.record(COUNT, |to| write_usage(to, clock, count));
    }
}

fn lingering_of(mut from: Reader<'_>, clock: &Clock) -> Result<Lingering, Unthawable> {
    let until = from.moment(UNTIL, clock)?;
    let (sa, spi) = (SaId(from.some_number(SA)?), Spi(from.some_number(LINGERING_SPI)?));
    let heir = from.number_if_any(HEIR)?.map(Spi);
    let count = usage(from.record(COUNT, "counters")?, clock)?;
    from.end()?;
    Ok(Lingering { until, sa, spi, heir: heir.map(|heir| (heir, count)) })
}

impl Ending {
    fn number(self) -> u8 {
        match self {
            Self::Otherwise => 0,
            Self::Unanswered => 1,
            Self::ByPeer => 2,
        }
    }

    fn of_number(number: u64) -> Option<Self> {
        [Self::Otherwise, Self::Unanswered, Self::ByPeer]
            .into_iter()
            .find(|ending| u64::from(ending.number()) == number)
    }
}
