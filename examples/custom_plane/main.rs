//! A gateway with a data plane of one's own: `cargo run --example custom_plane -- policy.xml`, as root.
//!
//! It negotiates every tunnel of the policy that this side may start, and prints what the engine has asked of the
//! plane.

mod counting;

use counting::Counting;
use std::error::Error;
use vpn::{Gateway, PlaneInlet, Selection};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: custom_plane POLICY")?;
    let text = std::fs::read_to_string(&path)?;
    let loaded = vpn::policy::xml::read(&path, &text)?;

    let plane = Counting::default();
    let counts = plane.counts();
    // A plane that asks for SAs, or that meets a peer at another address, tells the engine so with `inlet.notice(…)`.
    let inlet = PlaneInlet::new();
    let gateway = Gateway::builder(loaded.policy).data_plane(plane, inlet).start().await?;

    for tunnel in gateway.tunnels().activate(Selection::All).await? {
        match tunnel.outcome {
            Ok(()) => println!("{}: up", tunnel.name),
            Err(failure) => println!("{}: {failure}", tunnel.name),
        }
    }
    gateway.stop().await;
    println!("{:?}", counts.lock().map_err(|_| "the plane has panicked")?);
    Ok(())
}
