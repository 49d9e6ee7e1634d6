//! `[log]`: the filter that a level stands for. The section itself is in the crate `settings`.

pub use settings::{BadLevel, Log, LogFormat, LogLevel};
use tracing_subscriber::filter::{LevelFilter, Targets};

/// The target of the library for PKCS#11 tokens.
const TOKENS: &str = "cryptoki";

/// A level that can filter the log.
pub trait Targeted {
    /// The filter it stands for.
    fn targets(&self) -> Targets;
}

impl Targeted for LogLevel {
    fn targets(&self) -> Targets {
        let text = self.to_string();
        let directives: Vec<String> = text.split(',').map(of_today).collect();
        let mut targets: Targets =
            directives.join(",").parse().expect("a level has the syntax of directives");
        // A target covers all whose names begin with it; `vpn`, the library, is not to cover this program.
        let names = |target: &str| {
            let mut named = directives.iter().filter_map(|directive| directive.split_once('='));
            named.any(|(name, _)| name == target)
        };
        if names("vpn") && !names("vpnd") {
            let level = targets.default_level().unwrap_or(LevelFilter::OFF);
            targets = targets.with_target("vpnd", level);
        }
        // The library for tokens also logs what it returns as an error, and that a session has ended.
        let wants_all = targets.default_level() >= Some(LevelFilter::DEBUG);
        match wants_all || text.contains(TOKENS) {
            true => targets,
            false => targets.with_target(TOKENS, LevelFilter::OFF),
        }
    }
}

/// A directive with the present name of the daemon's own part, which was `cli`.
fn of_today(directive: &str) -> String {
    match directive.strip_prefix("cli") {
        Some(rest) if rest.starts_with(['=', ':']) => format!("vpnd{rest}"),
        _ => directive.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_level_that_is_accepted_is_a_filter(text in "([a-z:=,\\[{}\\] ]|info|debug|off|=trace){0,12}") {
            if let Ok(level) = text.parse::<LogLevel>() {
                level.targets();
            }
        }
    }

    #[test]
    fn directives_with_fields_are_filters() {
        for (text, is_level) in [
            ("ike[{peer}]=debug", true),
            ("ike[{a}=debug", false),
            ("ike[{a}[{b}]=debug", false),
            ("a=b=info", false),
            ("=info", true),
        ] {
            let level = text.parse::<LogLevel>();
            assert_eq!(level.is_ok(), is_level, "{text}");
            level.iter().for_each(|level| drop(level.targets()));
        }
    }
}
