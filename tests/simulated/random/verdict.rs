//! Checks of a random world once nothing stands in the way any more, and nothing has happened for a while.

use super::action::History;
use super::plan::{child_name, line_name};
use ike::status::{ChildStatus, IkeStatus, State};
use sim::HostId;
use sim::invariant::{bookkeeping, leftovers_after_stop, mirrored, mirrored_keys, plane_fits};
use std::time::Duration;

/// More than anything takes that follows from what has happened: noticing that a peer is gone, the longest pause
/// between attempts, redundant IKE SAs.
const QUIET: Duration = Duration::from_secs(400);

/// A look may meet a rekey, or a replaced SA that lingers.
const LOOKS: u32 = 4;
const BETWEEN_LOOKS: Duration = Duration::from_secs(23);

/// Lets a world come to rest and names what is wrong with it then.
pub fn judge(history: &mut History) -> Vec<String> {
    history.calm_down();
    history.world.run_for(QUIET);
    let mut found = Vec::new();
    for _ in 0..LOOKS {
        found = look(history);
        if found.is_empty() {
            break;
        }
        history.world.run_for(BETWEEN_LOOKS);
    }
    if found.is_empty() {
        found = wake(history);
    }
    if history.world.in_the_clear() > 0 {
        found.push("packets would have left in the clear".into());
    }
    if found.is_empty() {
        found = stop(history);
    }
    found
}

/// The faults at the moment.
fn look(history: &mut History) -> Vec<String> {
    let mut found = Vec::new();
    let mut up = vec![0; history.plan.gateways];
    for line in 0..history.plan.lines.len() {
        found.extend(look_at_line(history, line, &mut up));
    }
    for (gateway, up) in up.into_iter().enumerate() {
        found.extend(look_at_gateway(history, history.hosts[gateway], up));
    }
    found
}

fn look_at_line(history: &mut History, line: usize, up: &mut [usize]) -> Vec<String> {
    let ends = history.plan.lines[line].ends;
    let statuses = ends.map(|g| status(history, history.hosts[g], line));
    let [Some(left), Some(right)] = &statuses else {
        return match history.plan.lines[line].present {
            true => vec![format!("line{line} is missing")],
            false => vec![],
        };
    };
    for (gateway, status) in ends.into_iter().zip([left, right]) {
        up[gateway] += usize::from(status.sa.is_some());
    }
    let mut found = mirrored(left, right);
    for n in 0..history.plan.lines[line].children {
        let name = child_name(line, n);
        let up = serving(left, &name).is_some();
        if !up && history.plan.wants_up(line, n) {
            found.push(format!("{name} is not up, but should be"));
        }
        if up {
            for side in 0..2 {
                if !history.packet_arrives((line, side), n) {
                    found.push(format!("a packet of end {side} of {name} does not arrive"));
                }
            }
        }
    }
    found
}

fn look_at_gateway(history: &mut History, host: HostId, up: usize) -> Vec<String> {
    let world = &mut history.world;
    let mut found = bookkeeping(world, host);
    found.extend(plane_fits(world, host));
    for other in history.hosts.iter().filter(|h| **h != host) {
        found.extend(mirrored_keys(world, host, *other));
    }
    let name = world.host(host).name.clone();
    let held = world.host(host).engine.inventory();
    // The last answer of an IKE SA that was rekeyed is kept longer than it takes until the next look.
    let rests = held.sessions == up
        && held.ike_sas == up
        && held.half_open == 0
        && held.lingering == 0
        && held.pending_spis == 0
        && held.deadlines == up + usize::from(held.final_answers > 0);
    if !rests {
        found.push(format!("{name} has {up} tunnels up and is not at rest: {held:?}"));
    }
    found
}

fn status(history: &mut History, host: HostId, line: usize) -> Option<IkeStatus> {
    let name = line_name(line);
    history.world.status(host).into_iter().find(|s| s.name == name)
}

fn serving<'a>(status: &'a IkeStatus, name: &str) -> Option<&'a ChildStatus> {
    status.children.iter().find(|c| c.name == name && c.state == State::Established)
}

/// A packet brings up what waits for one.
fn wake(history: &mut History) -> Vec<String> {
    let mut found = Vec::new();
    for line in 0..history.plan.lines.len() {
        if !history.plan.lines[line].present {
            continue;
        }
        for n in 0..history.plan.lines[line].children {
            let Some(side) = history.plan.trapping_end(line, n) else { continue };
            history.packet_arrives((line, side), n);
            history.world.run_for(Duration::from_secs(15));
            if !history.packet_arrives((line, side), n) {
                found.push(format!("no packet brings {} up", child_name(line, n)));
            }
        }
    }
    found
}

/// All gateways stop, and leave nothing.
fn stop(history: &mut History) -> Vec<String> {
    for host in history.hosts.clone() {
        history.world.stop(host);
    }
    history.world.run_for(Duration::from_secs(120));
    let hosts = history.hosts.clone();
    hosts.into_iter().flat_map(|h| leftovers_after_stop(&mut history.world, h)).collect()
}
