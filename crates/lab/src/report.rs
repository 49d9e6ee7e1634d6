//! A report: Markdown with pictures, and the raw data beside it.

use crate::foreign;
use crate::machine::Machine;
use crate::plot::Plot;
use crate::table::Table;
use serde::Serialize;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The report of an experiment.
#[derive(Debug)]
pub struct Report {
    title: String,
    text: String,
    headline: Option<String>,
    plots: Vec<(String, Plot)>,
    /// The share of the machine that other programs took.
    foreign: Option<f64>,
    rows: Vec<serde_json::Value>,
}

impl Report {
    /// An empty one.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            text: String::new(),
            headline: None,
            plots: Vec::new(),
            foreign: None,
            rows: Vec::new(),
        }
    }

    /// Adds a paragraph.
    pub fn say(&mut self, paragraph: impl AsRef<str>) {
        let _ = writeln!(self.text, "{}\n", paragraph.as_ref().trim());
    }

    /// Adds the paragraph that says what was found: it is what the command prints, too.
    pub fn headline(&mut self, paragraph: impl AsRef<str>) {
        self.say(&paragraph);
        self.headline = Some(paragraph.as_ref().trim().to_owned());
    }

    /// The title and what was found, as lines for a terminal.
    pub fn summary(&self) -> String {
        let found = self.headline.as_deref().unwrap_or_default().replace(['*', '`'], "");
        let mut text = format!("{}\n", self.title);
        let mut line = String::from(" ");
        for word in found.split_whitespace() {
            if line.chars().count() + 1 + word.chars().count() > 100 {
                text.push_str(&format!("{line}\n"));
                line = String::from(" ");
            }
            line.push(' ');
            line.push_str(word);
        }
        if !line.trim().is_empty() {
            text.push_str(&format!("{line}\n"));
        }
        text
    }

    /// Begins a section.
    pub fn section(&mut self, title: &str) {
        self.say(format!("## {title}"));
    }

    /// Adds a table.
    pub fn table(&mut self, table: &Table) {
        self.say(table.to_string());
    }

    /// Adds a picture, which will be the file `name.svg`.
    pub fn plot(&mut self, name: &str, plot: &Plot) {
        let file = format!("{name}.svg");
        self.say(format!("![{}]({file})", plot.title.replace(['[', ']'], "")));
        self.plots.push((file, plot.clone()));
    }

    /// Notes the share of the machine, 0 to 1, that other programs took meanwhile. If it is more than a twentieth,
    /// every figure says so.
    pub fn disturbed(&mut self, share: f64) {
        self.foreign = Some(share);
    }

    /// The mark of figures that were measured beside other programs.
    fn mark(&self) -> Option<String> {
        let share = self.foreign.filter(|share| *share > foreign::LIMIT)?;
        let percent = share * 100.0;
        Some(format!("Under foreign load: other programs took {percent:.0} % of the machine."))
    }

    #[cfg(test)]
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Adds what was measured, each of the rows an object.
    ///
    /// # Panics
    /// Where a row is no object that JSON can hold.
    pub fn data(&mut self, rows: impl IntoIterator<Item = impl Serialize>) {
        let rows = rows.into_iter();
        self.rows.extend(rows.map(|row| serde_json::to_value(row).expect("plain values")));
    }

    /// Writes `README.md`, the pictures and `data.json` to a directory, which is made where there is none; former
    /// pictures there are removed. Returns the file to read.
    ///
    /// # Errors
    /// Where a file cannot be written; the text names it.
    pub fn write(&self, directory: &Path, machine: &Machine, how: &str) -> Result<PathBuf, String> {
        let name = |path: &Path| path.display().to_string();
        fs::create_dir_all(directory)
            .map_err(|e| format!("cannot make {}: {e}", name(directory)))?;
        let put = |file: &str, text: &str| {
            let path = directory.join(file);
            fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", name(&path)))?;
            Ok::<_, String>(path)
        };
        let there =
            fs::read_dir(directory).map_err(|e| format!("cannot read {}: {e}", name(directory)))?;
        for path in there.flatten().map(|entry| entry.path()) {
            if path.extension().is_some_and(|extension| extension == "svg") {
                fs::remove_file(&path)
                    .map_err(|e| format!("cannot remove {}: {e}", name(&path)))?;
            }
        }
        let mark = self.mark();
        for (file, plot) in &self.plots {
            let mut plot = plot.clone();
            if let Some(mark) = &mark {
                plot.quote = format!("{} {mark}", plot.quote).trim().to_owned();
            }
            put(file, &plot.svg())?;
        }
        let foreign = self.foreign;
        let head = serde_json::json!({
            "title": self.title, "made_by": how, "machine": machine, "foreign_load": foreign,
        });
        let head = serde_json::to_string(&head).expect("plain values");
        let rows: Vec<String> = self.rows.iter().map(serde_json::Value::to_string).collect();
        let head = head.trim_end_matches('}');
        put("data.json", &format!("{head},\n\"rows\":[\n{}\n]}}\n", rows.join(",\n")))?;
        let load = match (&mark, foreign) {
            (Some(mark), _) => {
                format!(" **{mark} Its figures show less than those of a quiet machine.**")
            }
            (None, Some(share)) => {
                format!(" Other programs took {:.1} % of the machine meanwhile.", share * 100.0)
            }
            (None, None) => String::new(),
        };
        let text = format!(
            "# {}\n\nMade by `{how}`; all measured values are in [data.json](data.json). {machine}{load}\n\n{}\n",
            self.title,
            self.text.trim_end(),
        );
        put("README.md", &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::Axis;

    #[test]
    fn a_report_is_markdown_pictures_and_data() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let place = directory.path().join("new");
        fs::create_dir(&place).expect("writable");
        fs::write(place.join("old.svg"), "").expect("writable");
        let mut report = Report::new("Title");
        report.section("Section");
        assert_eq!(report.summary(), "Title\n");
        report.say("text\n");
        let found =
            "Throughput of `a` relative to b: **2 times**, ".to_owned() + &"and more ".repeat(20);
        report.headline(&found);
        let summary = report.summary();
        assert!(
            summary.starts_with("Title\n  Throughput of a relative to b: 2 times, and"),
            "{summary}"
        );
        assert!(summary.lines().all(|line| line.chars().count() <= 100), "{summary}");
        let panel = crate::plot::Panel {
            caption: String::new(),
            x: Axis::groups("x", ["a"]),
            y: Axis::linear("y (s)"),
            series: vec![],
            mark: None,
        };
        let plot =
            Plot { title: "Rates".into(), quote: String::new(), panels: vec![panel], columns: 1 };
        report.plot("rates", &plot);
        report.data([serde_json::json!({ "value": 1 }), serde_json::json!({ "value": 2 })]);
        let file = report.write(&place, &Machine::look(), "vpnctl experiment x").expect("writable");
        let text = fs::read_to_string(file).expect("it is there");
        assert!(text.starts_with("# Title\n\nMade by `vpnctl experiment x`"), "{text}");
        assert!(text.contains("\n## Section\n\ntext\n\nThroughput of `a` relative to b"), "{text}");
        assert!(text.contains("\n\n![Rates](rates.svg)\n"), "{text}");
        assert!(!place.join("old.svg").exists() && place.join("rates.svg").exists());
        let data = fs::read_to_string(place.join("data.json")).expect("it is there");
        let data: serde_json::Value = serde_json::from_str(&data).expect("JSON");
        assert_eq!(data["rows"][1]["value"], 2);
        assert!(data["machine"]["cores"].as_u64() > Some(0));
    }

    #[test]
    fn foreign_load_is_marked_on_every_figure() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let write = |share: Option<f64>| {
            let mut report = Report::new("Title");
            let plot = |title: &str| Plot {
                title: title.to_owned(),
                quote: "Quoted.".to_owned(),
                panels: vec![],
                columns: 1,
            };
            report.plot("a", &plot("A"));
            report.plot("b", &plot("B"));
            share.into_iter().for_each(|share| report.disturbed(share));
            let file = report.write(directory.path(), &Machine::look(), "x").expect("writable");
            let read = |name: &str| fs::read_to_string(directory.path().join(name)).expect("there");
            [fs::read_to_string(file).expect("there"), read("a.svg"), read("b.svg")]
        };
        let mark = "Under foreign load";
        assert!(write(Some(0.4)).iter().all(|text| text.contains(mark)));
        for quiet in [None, Some(0.01)] {
            assert!(!write(quiet).iter().any(|text| text.contains(mark)));
        }
        assert!(write(Some(0.01))[0].contains("Other programs took 1.0 % of the machine"));
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let wrong = Report::new("").write(Path::new("/proc/none"), &Machine::look(), "");
        assert!(wrong.expect_err("no such directory").starts_with("cannot make /proc/none: "));
    }
}
