use super::*;
use crate::fleet::Ledger;
use crate::fleet::tests::tunnel;
use crate::source::twin::Twin;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// A gateway with so many tunnels, of which each hundredth is down.
fn twin(tunnels: u64) -> Twin {
    let packets = |n: u64| (!n.is_multiple_of(100)).then_some(10);
    let tunnels = (0..tunnels).map(|n| tunnel(&format!("Site{n:05}"), packets(n))).collect();
    Twin { tunnels, ..Twin::default() }
}

async fn read(twin: &Twin, query: &str) -> Value {
    let query = Query::read(query).expect("valid");
    let list = List::read(twin, query).await.expect("the gateway runs");
    serde_json::to_value(list).expect("JSON")
}

#[tokio::test]
async fn a_page_of_twenty_thousand_tunnels_has_fifty_rows() {
    let twin = twin(20_000);
    let list = read(&twin, "").await;
    let rows = list["rows"].as_array().expect("rows");
    assert_eq!((rows.len(), &list["page"], &list["pages"]), (ROWS, &json!(1), &json!(400)));
    assert_eq!(list["totals"], json!({"up": 19_800, "negotiating": 0, "blocked": 0, "down": 200}));
    assert_eq!(
        (&rows[0]["child"], &rows[0]["condition"]),
        (&json!("Site00000_lan"), &json!("down"))
    );
    assert_eq!(list["traffic"]["bytes_in"], json!(19_800_000));
    assert_eq!(twin.asked.load(Ordering::SeqCst), ROWS, "no other tunnel is asked for");
    assert!(list.to_string().len() < 32 * 1024);

    let first = |list: &Value| list["rows"][0]["child"].clone();
    for (query, page, child, matched) in [
        ("page=400", 400, json!("Site19950_lan"), 20_000),
        // Behind the last page, and before the first.
        ("page=401", 400, json!("Site19950_lan"), 20_000),
        ("page=0", 1, json!("Site00000_lan"), 20_000),
        ("state=down&page=4", 4, json!("Site15000_lan"), 200),
        ("state=blocked", 1, Value::Null, 0),
        ("filter=site1234", 1, json!("Site12340_lan"), 10),
        ("filter=site1234&state=down", 1, Value::Null, 0),
        ("filter=SITE00100_LAN", 1, json!("Site00100_lan"), 1),
    ] {
        let list = read(&twin, query).await;
        let told = (&list["page"], first(&list), &list["matched"]);
        assert_eq!(told, (&json!(page), child, &json!(matched)), "{query}");
    }
}

#[tokio::test]
async fn a_gateway_without_tunnels_has_one_page_and_no_row() {
    let list = read(&twin(0), "filter=x").await;
    assert_eq!(
        (&list["pages"], &list["matched"], &list["rows"]),
        (&json!(1), &json!(0), &json!([]))
    );
    let stopped = Twin { stopped: true, ..Twin::default() };
    assert!(List::read(&stopped, Query::default()).await.is_none());
}

#[tokio::test]
async fn a_row_is_that_of_its_tunnel_though_another_one_has_the_name() {
    // A phase 1 tunnel has the name of the phase 2 tunnel of another one.
    let mut tunnels = vec![tunnel("b", Some(1)), tunnel("a", None)];
    tunnels[0].name = "a_lan".to_owned();
    tunnels[0].children[0].name = "b_lan".to_owned();
    let list = read(&Twin { tunnels, ..Twin::default() }, "").await;
    let names = |row: &Value| (row["tunnel"].clone(), row["child"].clone());
    let rows: Vec<_> = list["rows"].as_array().expect("rows").iter().map(names).collect();
    assert_eq!(rows, [(json!("a_lan"), json!("b_lan")), (json!("a"), json!("a_lan"))]);
}

fn told(tunnel: &Value, child: Option<&str>) -> Row {
    let tunnel: Tunnel = serde_json::from_value(tunnel.clone()).expect("a tunnel");
    let mut round = Ledger::default();
    let now = Instant::now();
    let mut round = round.round(0, now);
    round.add(&[crate::fleet::tests::tunnel("site", None)], now);
    let line = round.finish().lines.remove(0);
    let line = Line { child: child.map(str::to_owned), ..line };
    row(&tunnel, &line).expect("it is there")
}

#[test]
fn a_row_tells_why_a_tunnel_is_not_up() {
    let waits = json!({"for": "attempt", "message": "the next attempt, in 40s", "seconds": 40});
    let failure = json!({"kind": "no_answer", "message": "no answer from 192.0.2.2"});
    let down =
        json!({"reason": "deleted by the peer", "seconds_ago": 7, "since": "2026-11-23T14:18:21Z"});
    let mut tunnel = json!({
        "name": "site", "state": "down", "local_id": "left", "remote_id": "<b>right", "local_address": null,
        "remote_address": null, "ike_sa": null, "last_failure": null, "down": down,
        "children": [{"name": "lan", "state": "down", "mode": "tunnel", "local": ["10.1.0.0/24"],
                      "remote": ["10.2.0.0/24", "10.3.0.0/24", "10.4.0.0/24", "10.5.0.0/24", "10.6.0.0/24"],
                      "child_sa": null, "last_failure": null, "waits": waits}]
    });
    let row = told(&tunnel, Some("lan"));
    let remark = "deleted by the peer; waits for the next attempt, in 40s";
    assert_eq!((row.remark.as_deref(), row.seconds), (Some(remark), Some(7)));
    assert_eq!(
        (row.condition, row.peer, row.peer_id.as_str()),
        (Condition::Down, None, "<b>right")
    );
    assert_eq!(row.remote, "10.2.0.0/24, 10.3.0.0/24, 10.4.0.0/24 and 2 more");

    tunnel["children"][0]["last_failure"] = failure;
    tunnel["state"] = json!("negotiating");
    let row = told(&tunnel, Some("lan"));
    assert_eq!((row.state.as_str(), row.seconds), ("negotiating", None));
    assert!(row.remark.is_some_and(|r| r.starts_with("no answer from 192.0.2.2; waits for")));

    tunnel["unanswered"] = json!({"message": "x".repeat(400), "cure": []});
    assert_eq!(told(&tunnel, None).remark, Some("x".repeat(REMARK)));
    tunnel["children"][0]["state"] = json!("blocked");
    tunnel["children"][0]["fault"] = json!("the device is missing");
    let row = told(&tunnel, Some("lan"));
    let remark = Some("no packet passes: the device is missing".to_owned());
    assert_eq!((row.condition, row.remark), (Condition::Blocked, remark));
}
