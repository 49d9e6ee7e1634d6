//! Several texts that are read as one policy.

use policy::database::PutOptions;
use policy::xml::{Diagnostics, Loaded, Options, Text, read, read_all, read_with};
use policy::{Database, Policy};
use proptest::prelude::*;

const SAMPLE: &str = include_str!("../../../../tests/policies/site/left.xml");

/// The root element's tags, and the elements inside, each with all it holds.
fn elements(text: &str) -> Vec<String> {
    let objects = Database::read("sample.xml", text).expect("the sample is valid");
    let objects = objects.objects().iter();
    objects.map(|object| policy::xml::write([object.node()]).to_string()).collect()
}

/// A text of these texts of one element each.
fn joined<'t>(texts: impl IntoIterator<Item = &'t String>) -> String {
    let inside = texts.into_iter().map(|text| {
        let from = text.find("<AIX_VPN").expect("a root");
        let from = from + text[from..].find('>').expect("its end") + 1;
        &text[from..text.rfind("</AIX_VPN>").expect("the end of the root")]
    });
    format!("<AIX_VPN Version=\"2.1\">{}</AIX_VPN>", inside.collect::<String>())
}

fn read_texts(texts: &[(&str, &str)], options: &Options<'_>) -> Result<Loaded, Diagnostics> {
    let texts: Vec<Text<'_>> = texts.iter().map(|&(name, text)| Text { name, text }).collect();
    read_all(&texts, options)
}

/// File, line and message of each error.
fn errors(texts: &[(&str, &str)]) -> Vec<(String, usize, String)> {
    let errors = read_texts(texts, &Options::default()).expect_err("they have errors");
    errors.errors().map(|e| (e.file.clone(), e.line, e.message.clone())).collect()
}

proptest! {
    /// However the elements are spread over texts, the policy is the same as that of one text.
    #[test]
    fn texts_are_read_as_one(ends in prop::collection::vec(0..7_usize, 0..6)) {
        let elements = elements(SAMPLE);
        let mut ends: Vec<usize> = ends.into_iter().map(|end| end.min(elements.len())).collect();
        ends.push(elements.len());
        ends.sort_unstable();
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let texts: Vec<String> = starts.zip(&ends).map(|(from, to)| joined(&elements[from..*to])).collect();
        let names: Vec<String> = (0..texts.len()).map(|number| format!("{number}.xml")).collect();
        let texts: Vec<(&str, &str)> = names.iter().map(|n| &**n).zip(texts.iter().map(|t| &**t)).collect();
        let loaded = read_texts(&texts, &Options::default()).expect("together they are the sample");
        let whole = read("left.xml", SAMPLE).expect("the sample is valid");
        prop_assert_eq!(&loaded.policy, &whole.policy);
        prop_assert!(loaded.warnings.is_empty());
        for tunnel in ["site", "site_lan"] {
            let names = |loaded: &Loaded| {
                let found = loaded.definitions.of(tunnel);
                found.map(|d| (d.element.clone(), d.name.clone())).collect::<Vec<_>>()
            };
            prop_assert_eq!(names(&loaded), names(&whole));
            // Each is found in the file that it names.
            for definition in loaded.definitions.of(tunnel) {
                let (_, text) = texts.iter().find(|(name, _)| **name == *definition.file).expect("one of them");
                let line = text.lines().nth(definition.line - 1).expect("it has that line");
                prop_assert!(line.contains(&definition.element), "{line}");
            }
        }
        // And as objects.
        let texts: Vec<Text<'_>> = texts.iter().map(|&(name, text)| Text { name, text }).collect();
        let put = Database::default().put_all(&texts, &PutOptions::default()).expect("they fit");
        prop_assert_eq!(put.database, Database::read("left.xml", SAMPLE).expect("valid"));
    }
}

#[test]
fn an_error_is_told_with_its_file_and_its_line() {
    let elements = elements(SAMPLE);
    let common = joined(&elements);
    let first = common.replace("AES-CBC-256", "AES-CBC-265");
    let second = "<AIX_VPN Version=\"2.1\">\n<IKETunel/>\n</AIX_VPN>";
    let third = "<AIX_VPN Version=\"2.1\">\n\n<IPSecTunnel";
    let told = errors(&[("a.xml", &first), ("b.xml", second), ("c.xml", third)]);
    let places: Vec<(&str, usize)> = told.iter().map(|(file, line, _)| (&**file, *line)).collect();
    // The third text has no meaning, so that no reference is followed.
    assert!(places.contains(&("c.xml", 3)), "{told:?}");
    let told = errors(&[("a.xml", &first), ("b.xml", second)]);
    let [a, b] = &told[..] else { panic!("{told:?}") };
    let line = 1 + first.lines().position(|l| l.contains("AES-CBC-265")).expect("it is there");
    assert_eq!((&*a.0, a.1), ("a.xml", line));
    assert_eq!((&*b.0, b.1, &*b.2), ("b.xml", 2, "unknown element IKETunel"));
}

#[test]
fn an_object_of_the_same_name_is_told_with_the_file_of_the_first() {
    let text = joined(&elements(SAMPLE));
    // The line of the name, which is an attribute.
    let line = 1 + text.lines().position(|l| l.contains("IKE_TunnelName")).expect("it has one");
    let told = errors(&[("a.xml", &text), ("b.xml", &text)]);
    let of_tunnel = told.iter().find(|(.., message)| message.contains("IKETunnel"));
    let (file, _, message) = of_tunnel.expect("two of them");
    assert_eq!(file, "b.xml");
    let first = format!("a second IKETunnel named \"site\"; the first is in line {line} of a.xml");
    assert_eq!(*message, first);
    assert!(told.iter().all(|(file, ..)| file == "b.xml"), "{told:?}");
}

#[test]
fn each_text_is_a_policy_of_its_own_shape() {
    let text = joined(&elements(SAMPLE));
    for (other, says) in [
        ("<VPN/>", "the root element is VPN, not AIX_VPN"),
        ("", "the file holds no XML element"),
        ("<AIX_VPN Version='2.1' Vresion='1'/>", "Vresion"),
    ] {
        let told = errors(&[("a.xml", &text), ("b.xml", other)]);
        let [(file, _, message)] = &told[..] else { panic!("{told:?}") };
        assert!(file == "b.xml" && message.contains(says), "{message}");
    }
    // A lenient reader leaves names out in all of them.
    let options = Options { lenient: true, ..Options::default() };
    let other = "<AIX_VPN Version='2.1'><Other/></AIX_VPN>";
    let loaded = read_texts(&[("a.xml", &text), ("b.xml", other)], &options).expect("a warning");
    assert_eq!(loaded.warnings.iter().map(|w| &*w.file).collect::<Vec<_>>(), ["b.xml"]);
    assert_eq!(loaded.policy, read_with("a.xml", &text, &options).expect("valid").policy);
}

#[test]
fn the_order_of_texts_is_that_of_tunnels() {
    let elements = elements(SAMPLE);
    let (common, tunnels): (Vec<_>, Vec<_>) =
        elements.iter().partition(|text| !text.contains("<IPSecTunnel"));
    let common = joined(common);
    let first = joined(tunnels);
    let second = first.replace("\"site_lan\"", "\"copy\"");
    let names = |policy: &Policy| {
        let tunnels = policy.tunnels.iter().flat_map(|tunnel| &tunnel.children);
        tunnels.map(|child| child.name.clone()).collect::<Vec<_>>()
    };
    let options = Options::default();
    for (texts, expected) in
        [([&first, &second], ["site_lan", "copy"]), ([&second, &first], ["copy", "site_lan"])]
    {
        let texts = [("c.xml", &*common), ("1.xml", texts[0]), ("2.xml", texts[1])];
        let loaded = read_texts(&texts, &options).expect("they fit");
        assert_eq!(names(&loaded.policy), expected);
        let [warning] = &loaded.warnings[..] else { panic!("{:?}", loaded.warnings) };
        let told = format!("{} is never used: covered by {}, line ", expected[1], expected[0]);
        assert!(warning.message.starts_with(&told) && warning.message.ends_with("of 1.xml"));
        assert_eq!(warning.file, "2.xml");
    }
}

#[test]
fn findings_are_bounded_over_all_texts() {
    let text = format!("<AIX_VPN Version='2.1'>{}</AIX_VPN>", "<Other/>\n".repeat(30));
    let names: Vec<String> = (0..1000).map(|number| format!("{number}.xml")).collect();
    let texts: Vec<(&str, &str)> = names.iter().map(|name| (&**name, &*text)).collect();
    let errors = read_texts(&texts, &Options::default()).expect_err("they have errors");
    assert_eq!(errors.iter().count(), 50);
    assert!(errors.to_string().len() < 20_000);
}

#[test]
fn no_text_is_an_empty_policy() {
    let loaded = read_all(&[], &Options::default()).expect("nothing is wrong");
    assert_eq!(loaded.policy, Policy::default());
}
