//! The choice of a provider for each algorithm.

use crate::provider::Provider;
use crate::suite::Suite;
use algorithms::MAC_CHOICE;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A default provider, and algorithms with another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    default: Provider,
    others: BTreeMap<Algorithm, Provider>,
}

/// The cipher of a suite, as configurations name it; all that protects integrity alone with a MAC is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Algorithm(&'static str);

/// The name is none of [`Algorithm`].
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("no algorithm {0:?}; there are {names}", names = Algorithm::names().join(", "))]
pub struct NoSuchAlgorithm(String);

policy::readable_debug!(NoSuchAlgorithm);

/// The name is none of [`Provider`].
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("no crypto provider {0:?}; there are {names}", names = built_names())]
pub struct NoSuchProvider(String);

policy::readable_debug!(NoSuchProvider);

fn built() -> impl Iterator<Item = Provider> {
    Provider::ALL.into_iter().filter(|provider| provider.is_built())
}

fn built_names() -> String {
    let names: Vec<&str> = built().map(Provider::name).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

impl Choice {
    /// Chooses one provider for everything.
    pub fn of(default: Provider) -> Self {
        Self { default, others: BTreeMap::new() }
    }

    /// Chooses another provider for one algorithm.
    #[must_use]
    pub fn with(mut self, algorithm: Algorithm, provider: Provider) -> Self {
        self.others.insert(algorithm, provider);
        self
    }

    /// The provider that is wanted for a suite, be it that it has it or not.
    pub fn wanted(&self, suite: Suite) -> Provider {
        self.others.get(&suite.algorithm()).copied().unwrap_or(self.default)
    }

    /// The provider that makes a suite's cipher: the one wanted or, where that lacks the suite, AWS-LC, which has all
    /// (without the feature `aws-lc`: the portable one, which has all, too).
    pub fn provider(&self, suite: Suite) -> Provider {
        let wanted = self.wanted(suite);
        if wanted.supports(suite) { wanted } else { Provider::COMPLETE }
    }
}

impl Algorithm {
    /// Every name.
    pub fn names() -> Vec<&'static str> {
        algorithms::choices().collect()
    }
}

impl Suite {
    /// The algorithm of the suite, by which its provider is chosen. There is one DES; only the MAC beside it can be
    /// chosen.
    pub fn algorithm(self) -> Algorithm {
        let function = self.functions().next().expect("every suite has a function");
        Algorithm(function.choice().unwrap_or(MAC_CHOICE))
    }
}

impl FromStr for Algorithm {
    type Err = NoSuchAlgorithm;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::names().into_iter().find(|name| name.eq_ignore_ascii_case(text));
        known.map(Self).ok_or_else(|| NoSuchAlgorithm(text.to_owned()))
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl FromStr for Provider {
    type Err = NoSuchProvider;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = built().find(|provider| provider.name() == text);
        known.ok_or_else(|| NoSuchProvider(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::Function;
    use policy::KeyBits;

    #[test]
    fn an_algorithm_comes_from_where_it_is_wanted_or_from_where_it_is() {
        let named = |name: &str| name.parse::<Algorithm>().expect("a name");
        let choice = Choice::of(Provider::Ring).with(named("aes-gcm-128"), Provider::Portable);
        let provider = |bits| choice.provider(Suite::AesGcm16(bits));
        assert_eq!(provider(KeyBits::B128), Provider::Portable);
        assert_eq!(provider(KeyBits::B256), Provider::Ring);
        // ring has no AES-192.
        assert_eq!(provider(KeyBits::B192), Provider::AwsLc);
        assert_eq!(choice.wanted(Suite::AesGcm16(KeyBits::B192)), Provider::Ring);
    }

    #[test]
    fn every_suite_is_chosen_by_a_name_and_every_name_chooses_one() {
        let chosen: std::collections::BTreeSet<_> =
            Function::all().map(|f| f.suite().algorithm().to_string()).collect();
        assert_eq!(chosen, Algorithm::names().into_iter().map(str::to_owned).collect());
        assert_eq!(chosen.len(), 11);
        for name in Algorithm::names() {
            assert_eq!(name.parse::<Algorithm>().map(|a| a.to_string()).as_deref(), Ok(name));
        }
        let error = "aes".parse::<Algorithm>().expect_err("no name").to_string();
        assert!(error.starts_with("no algorithm \"aes\"; there are aes-gcm-128, "), "{error}");
    }
}
