//! Frames as they are on the terminal.

use super::model::{Model, Sort};
use super::sample::{Sample, Thread};
use super::screen::{Outcome, Screen};
use super::*;
use control::protocol::{Child, ChildSa, Tunnel};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::collections::BTreeMap;

fn sa(step: u64, weight: u64) -> ChildSa {
    let packets = step * 1000 * weight;
    ChildSa {
        suite: "AES-GCM-16-256".to_owned(),
        quantum_safe: false,
        not_quantum_safe: None,
        esn: false,
        encapsulation: "udp".to_owned(),
        inbound_spi: "c0000001".to_owned(),
        outbound_spi: "c0000002".to_owned(),
        packets_in: packets,
        packets_out: packets / 10,
        bytes_in: packets * 1400,
        bytes_out: packets * 6,
        idle_in_seconds: None,
        idle_out_seconds: None,
        refused: step * (weight / 50),
        path_mtu: None,
        inner_mtu: None,
        path_mtu_learned: false,
        established_seconds: 100 + step,
        rekey_in_seconds: Some(2600 - step * weight),
        expires_in_seconds: Some(3600),
        lifetime_seconds: None,
        lifesize_bytes: None,
        lifesize_left_bytes: None,
        overlap_percent: None,
        rekeys: 1,
        placed: Vec::new(),
    }
}

fn tunnel(name: &str, state: &str, sa: Option<ChildSa>) -> Tunnel {
    Tunnel {
        name: name.to_owned(),
        number: 0,
        state: state.to_owned(),
        local_id: "a".to_owned(),
        remote_id: "b".to_owned(),
        local_address: None,
        remote_address: Some([192, 0, 2, 2].into()),
        ike_sa: None,
        unanswered: None,
        children: vec![Child {
            name: format!("{name}_lan"),
            number: 0,
            state: if sa.is_some() { state } else { "down" }.to_owned(),
            mode: "tunnel".to_owned(),
            local: vec!["10.1.0.0/24".to_owned()],
            remote: vec!["10.2.0.0/24".to_owned()],
            narrowed: None,
            child_sa: sa,
            fault: None,
            waits: None,
            findings: Vec::new(),
            last_failure: None,
            down: None,
            policy: None,
        }],
        last_failure: None,
        down: None,
        policy: None,
        keys_exported_to: None,
        peer_product: None,
    }
}

/// The sample at second `step`: traffic that swells and ebbs.
fn sample(step: u64) -> Sample {
    let thread = |id, name: &str, millis| Thread {
        id,
        name: name.to_owned(),
        busy: Duration::from_millis(millis),
    };
    // The sum of a sawtooth, so that each second differs from the one before.
    let swell = (0..step).map(|s| s % 8 + 1).sum();
    Sample {
        at: Duration::from_secs(step),
        version: "0.1.0".to_owned(),
        up: Duration::from_secs(10_000 + step),
        tunnels: vec![
            tunnel("branch", "established", Some(sa(swell, 1))),
            tunnel("site", "established", Some(sa(step, 90))),
            tunnel("warehouse", "negotiating", None),
        ],
        counters: BTreeMap::from([
            ("esp.replayed".to_owned(), step),
            ("esp.no_sa".to_owned(), step * 30),
            ("ike.malformed".to_owned(), 7),
        ]),
        threads: vec![
            thread(1, "vpnd", step * 12),
            thread(2, "vpn0-0", step * 930),
            thread(3, "vpn0-1", step * 410),
        ],
    }
}

fn model() -> Model {
    let mut model = Model::default();
    (0..20).for_each(|step| model.take(Ok(sample(step))));
    model
}

fn screen() -> Screen {
    Screen::new(Sort::Name, "", true, Duration::from_secs(1))
}

fn press(screen: &mut Screen, keys: &str) -> Outcome {
    let press =
        |screen: &mut Screen, c| screen.press(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
    keys.chars().map(|c| press(screen, c)).last().unwrap_or(Outcome::Nothing)
}

/// The frame in docs/operate/top.md, which people compare with what they see.
#[test]
fn a_frame_of_80_columns_is_as_documented() {
    let text = frame(&model(), &screen(), 80, 24);
    let documented = include_str!("../../../../docs/operate/top.md");
    let block = documented.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let shown: Vec<_> = lines(&text).into_iter().filter(|line| !line.is_empty()).collect();
    let block = lines(block.expect("a frame"));
    let block: Vec<_> = block.into_iter().filter(|line| !line.is_empty()).collect();
    assert_eq!(shown, block, "docs/operate/top.md should have:\n{text}");
    assert_eq!(text.lines().count(), 24);
    assert!(text.lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn a_narrow_frame_has_names_and_whole_keys() {
    let text = frame(&model(), &screen(), 60, 12);
    let header = text.lines().nth(6).expect("a header");
    assert!(header.starts_with("TUNNEL▾ ") && header.ends_with("REFUSED"), "{text}");
    assert!(text.contains("\nsite_lan               established"), "{text}");
    assert!(
        text.trim_end().ends_with("q quit  s sort  r reverse  / filter  a all  h help"),
        "{text}"
    );
    let mut screen = screen();
    press(&mut screen, "/nowhere");
    assert!(frame(&model(), &screen, 60, 12).contains("no tunnel that is shown"));
    let mut none = Model::default();
    none.take(Ok(Sample { tunnels: Vec::new(), ..sample(1) }));
    let up = Screen::new(Sort::Name, "", false, Duration::from_secs(1));
    assert!(frame(&none, &up, 60, 12).contains("no tunnel is up; a shows"));
}

#[test]
fn a_wide_frame_has_room_for_more() {
    let text = frame(&model(), &screen(), 140, 12);
    let header = text.lines().nth(6).expect("a header");
    let names: Vec<&str> = header.split_whitespace().collect();
    assert_eq!(
        names,
        [
            "TUNNEL▾",
            "STATE",
            "PEER",
            "IN",
            "b/s",
            "OUT",
            "b/s",
            "IN",
            "pkt/s",
            "OUT",
            "pkt/s",
            "REFUSED",
            "REKEY",
            "LAST"
        ]
    );
    let site = text.lines().find(|line| line.starts_with("site_lan ")).expect("a line");
    for part in ["established", "192.0.2.2", "1.0G", "4.3M", "90k", "9.0k", "14m50s"] {
        assert!(site.contains(part), "{part}: {site}");
    }
}

#[test]
fn rates_are_of_the_last_interval() {
    let model = model();
    let rows = model.rows((Sort::Name, false), "");
    let [branch, site, warehouse] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((site.rates.packets_in, site.rates.packets_out), (90_000, 9_000));
    assert_eq!(site.rates.bits_in, 90_000 * 1400 * 8);
    assert_eq!((site.refused, site.refused_ever), (1, 19));
    // The 19th second of the sawtooth.
    assert_eq!(branch.rates.packets_in, 3000);
    assert_eq!((warehouse.state.as_str(), warehouse.rates.packets_in), ("negotiating", 0));
    assert_eq!(model.total.packets_in, 93_000);
    assert_eq!(model.drops[0], ("esp.no_sa".to_owned(), 30));
    let threads: Vec<_> =
        model.threads.iter().map(|(name, share)| (name.as_str(), *share)).collect();
    assert_eq!(threads, [("vpn0-0", 93), ("vpn0-1", 41), ("vpnd", 1)]);
}

#[test]
fn a_restarted_tunnel_or_daemon_counts_from_zero() {
    let mut model = Model::default();
    model.take(Ok(sample(0)));
    assert_eq!(model.total.packets_in, 0, "one look has no rates");
    model.take(Ok(sample(9)));
    let mut anew = sample(10);
    let sa = anew.tunnels[1].children[0].child_sa.as_mut().expect("up");
    sa.packets_in = 50;
    model.take(Ok(anew));
    let rows = model.rows((Sort::Name, false), "site");
    assert_eq!(rows[0].rates.packets_in, 50, "the tunnel has come up anew");

    let restarted = Sample { at: Duration::from_secs(11), up: Duration::ZERO, ..sample(5) };
    model.take(Ok(restarted));
    assert_eq!(model.total.packets_in, 0, "of another daemon");
    model.take(Err("no vpnd is listening on s\n  start one".to_owned()));
    let text = frame(&model, &screen(), 80, 12);
    assert!(text.ends_with("no vpnd is listening on s; trying again\n"), "{text}");
    model.take(Ok(Sample { up: Duration::from_secs(1), ..sample(12) }));
    assert!(frame(&model, &screen(), 80, 12).contains("q quit"));
}

#[test]
fn keys_choose_order_and_names() {
    let (model, mut screen) = (model(), screen());
    let first = |screen: &Screen| model.rows(screen.sort(), screen.filter())[0].tunnel.clone();
    assert_eq!(first(&screen), "branch");
    press(&mut screen, "ss");
    assert_eq!((screen.sort(), first(&screen).as_str()), ((Sort::In, false), "site"));
    press(&mut screen, "r");
    assert_eq!(first(&screen), "warehouse");
    press(&mut screen, "S/whales");
    assert!(screen.is_typing() && model.rows(screen.sort(), screen.filter()).is_empty());
    assert!(frame(&model, &screen, 80, 12).contains("show names with: whales"));
    screen.press(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE));
    press(&mut screen, "/WARE");
    screen.press(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE));
    assert_eq!(model.rows(screen.sort(), screen.filter()).len(), 1);
    let escape = KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE);
    assert_eq!(screen.press(escape), Outcome::Nothing);
    assert_eq!(screen.press(escape), Outcome::Quit);
    assert_eq!(press(&mut screen, "a"), Outcome::LookNow);
    assert!(!screen.shows_all());
    let help = frame(
        &model,
        &{
            let mut s = screen.clone();
            press(&mut s, "h");
            s
        },
        80,
        24,
    );
    assert!(help.contains("Any key goes back."), "{help}");
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    press(&mut screen, "/");
    assert_eq!(screen.press(interrupt), Outcome::Quit);
}

#[test]
fn no_size_of_terminal_panics() {
    let (model, mut screen) = (model(), screen());
    for keys in ["", "h"] {
        press(&mut screen, keys);
        for (width, height) in [(1, 1), (3, 2), (20, 5), (80, 7), (111, 8), (300, 100)] {
            frame(&model, &screen, width, height);
        }
    }
    press(&mut screen, " ");
    screen.press(KeyEvent::new(KeyCode::End, KeyModifiers::NONE));
    let text = frame(&model, &screen, 80, 9);
    assert!(text.contains("warehouse_lan") && !text.contains("branch_lan"), "{text}");
}
