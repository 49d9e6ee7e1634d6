//! Addresses that change under a running flow (RFC 4555).

use crate::site::{LEFT_INNER, RIGHT_INNER, hosts, passes, two_with};
use libtest_mimic::Trial;
use testkit::gateway::{GIVES_UP, Gateway, PATIENT};
use testkit::traffic::Stream;
use testkit::{GATEWAYS, WITH_NFT, test, until};

pub fn trials() -> Vec<Trial> {
    vec![
        test("the side that began changes its address under a flow", GATEWAYS, initiator),
        test("the side that answered changes its address under a flow", GATEWAYS, responder),
        test("a dead path is left for another", WITH_NFT, dead_path),
        test("without MOBIKE nobody follows", GATEWAYS, without),
    ]
}

fn replace(gateway: &Gateway, from: &str, to: &str) {
    gateway.space.ip(&format!("address del {from}/24 dev wire"));
    gateway.space.ip(&format!("address add {to}/24 dev wire"));
}

fn await_path(gateway: &Gateway, local: &str, remote: &str) {
    let addresses = || {
        let sa = gateway.json(&["status", "site", "--json"])["ike_sa"].clone();
        [sa["local"].to_string(), sa["remote"].to_string()]
    };
    let there = || {
        let [l, r] = addresses();
        (l.contains(&format!("\"{local}:")) && r.contains(&format!("\"{remote}:"))).then_some(())
    };
    until(&format!("{}: {local} to {remote}", gateway.name), there, || {
        format!("{:?}", addresses())
    });
}

fn goes_on(stream: &Stream) {
    let before = stream.received();
    let more = || (stream.received() > before + 300_000).then_some(());
    until("the stream goes on", more, || format!("{} then {}", before, stream.received()));
}

fn up(ike: &str) -> [Gateway; 2] {
    let [mut left, mut right] = two_with(ike);
    left.start();
    right.start();
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    [left, right]
}

fn stream(left: &Gateway, right: &Gateway) -> Stream {
    let (from, to) = ((&left.space.0, LEFT_INNER.into()), (&right.space.0, RIGHT_INNER.into()));
    let stream = Stream::start(from, to, 0).expect("a connection");
    goes_on(&stream);
    stream
}

fn spis(gateway: &Gateway) -> [String; 2] {
    let sa = gateway.json(&["status", "site", "--json"])["ike_sa"].clone();
    ["initiator_spi", "responder_spi"].map(|field| sa[field].to_string())
}

fn initiator() {
    let [mut left, mut right] = up(PATIENT);
    let watch = left.space.watch("wire");
    let before = spis(&left);
    let stream = stream(&left, &right);
    for (from, to) in [("192.0.2.1", "192.0.2.9"), ("192.0.2.9", "192.0.2.11")] {
        replace(&left, from, to);
        await_path(&left, to, "192.0.2.2");
        await_path(&right, "192.0.2.2", to);
        goes_on(&stream);
    }
    right.await_log(&["\"event\":\"moved\"", "192.0.2.9", "192.0.2.11"]);
    left.await_log(&["\"event\":\"readdressed\"", "192.0.2.9", "192.0.2.11"]);
    assert_eq!(spis(&left), before);
    assert_eq!(left.ctl_ok(&["rekey", "site"]), "site: rekeyed\n");
    assert_eq!(right.ctl_ok(&["rekey", "site_lan"]), "site_lan: rekeyed\n");
    goes_on(&stream);
    stream.finish().expect("every octet is right");
    left.stop();
    right.stop();
    watch.nothing_in_the_clear();
}

fn responder() {
    let [left, right] = up(PATIENT);
    let before = spis(&left);
    let stream = stream(&left, &right);
    replace(&right, "192.0.2.2", "192.0.2.9");
    await_path(&left, "192.0.2.1", "192.0.2.9");
    await_path(&right, "192.0.2.9", "192.0.2.1");
    goes_on(&stream);
    assert_eq!(spis(&left), before);
    stream.finish().expect("every octet is right");
}

fn dead_path() {
    let ike = format!("{PATIENT}liveness_interval = \"1s\"\n");
    let [mut left, mut right] = two_with(&ike);
    right.space.ip("address add 192.0.2.12/24 dev wire");
    left.start();
    right.start();
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    let before = spis(&left);
    // Every packet to the first address is dropped on the way.
    for rule in [
        "add table inet dead",
        "add chain inet dead in { type filter hook input priority -10; }",
        "add rule inet dead in ip daddr 192.0.2.2 drop",
    ] {
        let rule = rule.to_owned();
        right.space.run(move || {
            assert!(std::process::Command::new("nft").arg(rule).status().expect("nft").success());
        });
    }
    await_path(&left, "192.0.2.1", "192.0.2.12");
    await_path(&right, "192.0.2.12", "192.0.2.1");
    passes(&hosts(&left, &right), b"by the other address");
    assert_eq!(spis(&left), before);
}

fn without() {
    let [left, right] = up(&format!("{GIVES_UP}mobike = false\nliveness_interval = \"1s\"\n"));
    replace(&left, "192.0.2.1", "192.0.2.9");
    left.await_log(&["\"event\":\"closed\"", "the peer does not answer"]);
    right.await_log(&["\"event\":\"closed\"", "the peer does not answer"]);
}
