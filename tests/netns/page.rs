//! The page of the metrics endpoint, in a browser.

use crate::site::{hosts, passes, two};
use libtest_mimic::Trial;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use testkit::browser::{BROWSER, Browser};
use testkit::gateway::{Gateway, PATIENT};
use testkit::{FILTERED, Need, eventually, policies, test};

pub fn trials() -> Vec<Trial> {
    vec![
        test("a browser shows when a tunnel goes down, and explains it", SHOWN, page_follows),
        test("the page takes any address, and shows the tunnels", SHOWN, any_address),
        test("the page of 150 tunnels, in all sizes and colours", SHOWN, page_of_many)
            .with_ignored_flag(true),
    ]
}

const SHOWN: &[Need] = &[Need::All(FILTERED), BROWSER];
const PAGE: &str = "http://127.0.0.1:9400/";
const METRICS: &str = "[metrics]\nlisten = \"127.0.0.1:9400\"\n";

/// The text of the row of a phase 2 tunnel, in this state.
fn row(state: &str, child: &str) -> String {
    format!(
        "[...document.querySelectorAll('#rows tr')].some((row) => row.querySelector('.child').textContent === '{child}' \
         && row.querySelector('.word').textContent === '{state}')"
    )
}

/// Presses Tab until the focused element matches a selector.
fn tab_to(browser: &mut Browser, selector: &str) {
    for _ in 0..80 {
        browser.press("Tab");
        if browser.value(&format!("document.activeElement.matches(\"{selector}\")")) == true {
            return;
        }
    }
    panic!("the keyboard does not reach {selector}\n{}", browser.text());
}

/// Nothing of the page is beside the screen, which a scroll bar may make narrower.
fn fits(browser: &mut Browser) {
    let widths = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]";
    let widths = browser.value(widths);
    assert!(widths[0].is_u64() && widths[0] == widths[1], "{widths}\n{}", browser.text());
}

fn page_follows() {
    let [mut left, mut right] = two();
    left.configure(METRICS);
    left.start();
    right.start();
    left.ctl_ok(&["activate"]);
    passes(&hosts(&left, &right), b"counted");
    let mut browser = Browser::start(&left.space, &left.path("browser"));
    browser.look(1280, 800, "light");
    browser.open(PAGE);
    browser.await_true(&row("established", "site_lan"));
    browser.await_true("document.querySelector('#link.live')");
    browser.await_true("document.querySelector('#totals .up b').textContent === '1'");
    browser.await_true("document.querySelector('#events').textContent.includes('site/site_lan')");
    browser
        .await_true("document.querySelector('#guard').textContent.startsWith('The guard is in')");
    fits(&mut browser);

    left.ctl_ok(&["deactivate", "site"]);
    browser.await_true(&row("down", "site_lan"));
    browser.await_true("document.querySelector('#totals .down b').textContent === '1'");
    browser.await_true("document.querySelector('#events li.bad b').textContent.startsWith('site')");

    tab_to(&mut browser, "#rows button");
    browser.press("Enter");
    let explained = "document.querySelector('#why[open] pre')?.textContent.includes";
    browser.await_true(&format!("{explained}('vpnctl deactivate')"));
    browser.press("Escape");
    browser.await_true("!document.querySelector('#why').open");
    browser.await_true("document.activeElement.matches('#rows button')");

    browser.look(400, 800, "dark");
    browser.await_true("getComputedStyle(document.querySelector('#rows tr')).display === 'grid'");
    fits(&mut browser);

    browser.press("/");
    browser.await_true("document.activeElement.id === 'filter'");
    browser.write("nowhere");
    browser.await_true("!document.querySelector('#none').hidden");
    assert_eq!(browser.complaints(), [""; 0]);

    // The browser comes back by itself.
    left.stop();
    browser.await_true("document.querySelector('#link.lost')");
    left.start();
    browser.await_true("document.querySelector('#link.live')");
    left.ctl_ok(&["stop"]);
    assert!(left.wait().success(), "a browser that reads events does not hold up the end");
}

/// An address can be kept, sent to others, and mistyped.
fn any_address() {
    let [mut left, _right] = two();
    left.configure(METRICS);
    left.start();
    let mut browser = Browser::start(&left.space, &left.path("browser"));
    for query in [
        "state=constructor",
        "state=__proto__&page=1e999",
        "state=toString&page=-7&page=2",
        "page=0x10&filter=%",
        "state=down\"]&page=NaN",
    ] {
        browser.open(&format!("{PAGE}?{query}"));
        browser.await_true("document.querySelector('#link.live')");
        browser.await_true("document.querySelector('input[name=state]').checked");
        browser.await_true("document.querySelector('#totals .down b').textContent === '1'");
    }
    assert_eq!(browser.complaints(), [""; 0]);
}

/// Two gateways with these phase 2 tunnels of one phase 1 tunnel, each for a network of its own.
fn two_with(children: &[String]) -> [Gateway; 2] {
    let policies = policies::site().map(|text| {
        let from = text.find("<IPSecTunnel").expect("it has one");
        let to = text.find("</AIX_VPN>").expect("it ends");
        let child = text[from..to].to_owned();
        let mut more = String::new();
        for (n, name) in children.iter().enumerate() {
            let name = format!("IPSec_TunnelName=\"{name}\"");
            let child = child.replace("IPSec_TunnelName=\"site_lan\"", &name);
            // The two sides name the networks the other way round.
            let child = ["10.1.0.", "10.2.0."].iter().fold(child, |text, net| {
                let (a, b) = net.split_at(5);
                text.replace(net, &format!("{a}{}{}", n + 1, &b[1..]))
            });
            let _ = writeln!(more, "{child}");
        }
        format!("{}{more}{}", &text[..to], &text[to..])
    });
    let [left, right] = Gateway::pair(&policies, [1, 2], PATIENT);
    left.space.ip("address add 10.1.0.1/32 dev lo");
    right.space.ip("address add 10.2.0.1/32 dev lo");
    [left, right]
}

/// Keeps a picture where somebody can look at it.
fn keep(browser: &mut Browser, name: &str) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/page");
    fs::create_dir_all(&directory).expect("writable");
    for format in ["png", "webp"] {
        let picture = browser.picture(format);
        fs::write(directory.join(format!("{name}.{format}.base64")), picture).expect("writable");
    }
}

fn page_of_many() {
    let mut children: Vec<String> = (1..=148).map(|n| format!("branch_{n:03}")).collect();
    // A name is text, whatever it says.
    children.push("&lt;img src=x onerror=violations.push(1)&gt;".to_owned());
    let [mut left, mut right] = two_with(&children);
    left.configure(METRICS);
    left.start();
    right.start();
    left.ctl_ok(&["activate", "site_lan"]);
    let up: Vec<&str> = children[..90].iter().map(String::as_str).collect();
    left.ctl_ok(&[&["activate"][..], &up].concat());
    let hosts = hosts(&left, &right);
    let mut browser = Browser::start(&left.space, &left.path("browser"));
    browser.look(1280, 800, "light");
    browser.open(PAGE);
    let text = |selector: &str, text: &str| {
        format!("document.querySelector('{selector}')?.textContent === '{text}'")
    };
    browser.await_true(&text("#totals .all b", "150"));
    browser.await_true(&text("#count", "1–50 of 150"));
    browser.await_true(&row("established", "branch_049"));
    // The line of a minute: until it has half of its points.
    let points =
        "document.querySelector('#total-line .out').getAttribute('d')?.split('L').length > 30";
    eventually("half of a line", || {
        passes(&hosts, b"a packet");
        (browser.value(points) == true).then_some(())
    });
    for (width, scheme) in
        [(1280, "light"), (1280, "dark"), (768, "light"), (400, "light"), (400, "dark")]
    {
        browser.look(width, 800, scheme);
        fits(&mut browser);
        keep(&mut browser, &format!("{width}-{scheme}"));
    }
    browser.look(1280, 800, "light");

    tab_to(&mut browser, "#next");
    browser.press("Enter");
    browser.press("Enter");
    browser.await_true(&text("#page", "Page 3 of 3"));
    browser.await_true(&row("down", "<img src=x onerror=violations.push(1)>"));
    assert_eq!(browser.value("document.querySelectorAll('#rows img').length"), 0);
    // The arrow keys choose a state.
    browser.value("document.querySelector('#totals input:checked').focus()");
    for _ in 0..4 {
        browser.press("ArrowRight");
    }
    browser.await_true(&text("#count", "1–50 of 59"));
    browser.await_true("location.search === '?state=down'");
    // The address leads to the same tunnels.
    browser.open(&format!("{PAGE}?state=down&filter=BRANCH_14"));
    browser.await_true(&text("#count", "1–9 of 9"));

    tab_to(&mut browser, "#rows button");
    browser.press("Enter");
    browser
        .await_true("document.querySelector('#why[open] pre')?.textContent.includes('branch_140')");
    browser.await_true(&text("#why-title", "branch_140: down"));
    for (width, scheme) in [(1280, "light"), (400, "dark")] {
        browser.look(width, 800, scheme);
        fits(&mut browser);
        keep(&mut browser, &format!("why-{width}-{scheme}"));
    }
    assert_eq!(browser.complaints(), [""; 0]);
}
