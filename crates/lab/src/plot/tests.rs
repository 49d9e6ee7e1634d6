use super::*;
use quick_xml::Reader;
use quick_xml::events::Event;

fn exactly(value: f64) -> Spread {
    Spread { low: value, median: value, high: value }
}

fn lines(y: Axis) -> Panel {
    let points = [1.0, 2.0, 4.0].map(|n| (n, Spread { low: n, median: n * 2.0, high: n * 3.0 }));
    let series = |name: &str, style| Series { name: name.into(), style, points: points.to_vec() };
    Panel {
        caption: "rr200x1k".into(),
        x: Axis::steps("parallel connections", &[1, 2, 4]),
        y,
        series: vec![series("event <wait>", Style::solid(0)), series("poll", Style::dashed(1))],
        mark: Some((5.0, "limit".into())),
    }
}

fn bars() -> Panel {
    let series = |name: &str, style| Series {
        name: name.into(),
        style,
        points: vec![(0.0, exactly(3.5)), (1.0, exactly(700.0))],
    };
    Panel {
        caption: String::new(),
        x: Axis::groups("cipher", ["GCM", "CBC"]),
        y: Axis::logarithmic("throughput (Mbit/s)"),
        series: vec![series("on", Style::solid(2)), series("off", Style::dashed(3))],
        mark: None,
    }
}

fn plot(panels: Vec<Panel>, columns: usize) -> Plot {
    Plot {
        title: "Transactions & <costs>".into(),
        quote: "The document: more than 350 % on a processor that has the instructions. ".repeat(4),
        panels,
        columns,
    }
}

/// All texts of a picture; it must be well-formed.
fn texts(svg: &str) -> Vec<String> {
    let mut reader = Reader::from_str(svg);
    let (mut depth, mut found) = (0, vec![String::new()]);
    loop {
        match reader.read_event().expect("well-formed") {
            Event::Start(start) => {
                depth += 1;
                if depth == 1 {
                    assert_eq!(start.name().as_ref(), "svg");
                }
                found.push(String::new());
            }
            Event::End(_) => depth -= 1,
            Event::Text(text) => {
                found.last_mut().expect("one at least").push_str(text.trim());
            }
            Event::GeneralRef(reference) => {
                let character = match &*reference {
                    "amp" => '&',
                    "lt" => '<',
                    "gt" => '>',
                    "quot" => '"',
                    other => panic!("an entity {other}"),
                };
                found.last_mut().expect("one at least").push(character);
            }
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0, "every element is closed");
    found.retain(|text| !text.is_empty());
    found
}

#[test]
fn a_picture_has_title_axes_units_legend_and_quote() {
    let svg = plot(vec![lines(Axis::linear("response time (ms)")), bars()], 2).svg();
    let texts = texts(&svg);
    for wanted in [
        "parallel connections",
        "response time (ms)",
        "cipher",
        "throughput (Mbit/s)",
        "rr200x1k",
        "poll",
        "limit",
        "GCM",
        "1000",
    ] {
        assert!(texts.iter().any(|t| t == wanted), "{wanted}: {texts:?}");
    }
    assert!(texts.iter().any(|t| t.replace(' ', "").contains("event<wait>")), "{texts:?}");
    let title = texts.iter().filter(|t| t.replace(' ', "") == "Transactions&<costs>");
    assert_eq!(title.count(), 2, "for readers and in the picture: {texts:?}");
    assert!(
        texts.iter().filter(|t| t.contains("350 %")).count() >= 3,
        "the quote in lines: {texts:?}"
    );
}

#[test]
fn nothing_leaves_the_picture() {
    for (panels, columns) in
        [(vec![], 1), (vec![lines(Axis::linear("y"))], 1), (vec![bars(); 5], 3)]
    {
        let svg = plot(panels, columns).svg();
        texts(&svg);
        let number = |name: &str| -> f64 {
            let (_, rest) = svg.split_once(&format!(" {name}=\"")).expect("the size is told");
            rest.split_once('"').and_then(|(value, _)| value.parse().ok()).expect("a number")
        };
        let (width, height) = (number("width"), number("height"));
        for circle in svg.split("<circle ").skip(1) {
            let at = |name: &str| -> f64 {
                let (_, rest) = circle.split_once(&format!("{name}=\"")).expect("a place");
                rest.split_once('"').and_then(|(value, _)| value.parse().ok()).expect("a number")
            };
            assert!(
                (0.0..=width).contains(&at("cx")) && (0.0..=height).contains(&at("cy")),
                "{circle}"
            );
        }
    }
}

#[test]
fn a_series_without_points_and_one_of_zeroes_can_be_drawn() {
    let mut empty = lines(Axis::logarithmic("rate (1/s)"));
    empty.series[0].points.clear();
    empty.series[1].points = vec![(1.0, exactly(0.0))];
    empty.mark = None;
    texts(&plot(vec![empty], 1).svg());
}

#[test]
fn a_group_without_a_bar_is_told() {
    let mut panel = bars();
    let said = |panel: &Panel| {
        let svg = plot(vec![panel.clone()], 1).svg();
        texts(&svg).iter().filter(|text| *text == "not measured").count()
    };
    assert_eq!(said(&panel), 0);
    panel.series.iter_mut().for_each(|series| series.points.truncate(1));
    assert_eq!(said(&panel), 1);
}
