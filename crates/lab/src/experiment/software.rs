//! The two ways to encrypt without the processor's instructions for it, as reports compare them.
//!
//! The portable provider is what `in_core_enabled=0` switches to. AWS-LC brings software of its own, which is several
//! times faster; a daemon has to be started with its instructions hidden to use it.

use crate::plot::Style;
use crate::site::Site;
use control::protocol::{Command as Ask, Reply};

/// The environment of a daemon whose AWS-LC finds no instructions for cryptography.
pub(super) const WITHOUT_INSTRUCTIONS: &[(&str, &str)] = &[(crypto::HIDING, crypto::HIDING_ALL)];

/// One of the states that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In-core off: the portable provider.
    Portable,
    /// The provider's own software.
    Library,
    /// In-core on.
    InCore,
}

impl State {
    pub(super) const ALL: [Self; 3] = [Self::Portable, Self::Library, Self::InCore];
    /// Both that do without the instructions.
    pub(super) const OFF: [Self; 2] = [Self::Portable, Self::Library];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Portable => "off: RustCrypto",
            Self::Library => "off: AWS-LC's software",
            Self::InCore => "on: AWS-LC",
        }
    }

    pub(super) const fn style(self) -> Style {
        match self {
            Self::Portable => Style::dashed(1),
            Self::Library => Style::dashed(4),
            Self::InCore => Style::solid(0),
        }
    }

    /// Returns `true` if this machine has it.
    pub(super) fn is_here(self) -> bool {
        self != Self::Library || can_hide()
    }

    /// Those that this machine has.
    pub(super) fn here() -> Vec<Self> {
        Self::ALL.into_iter().filter(|state| state.is_here()).collect()
    }
}

/// Two hosts whose daemons have their instructions, and two whose AWS-LC finds none.
pub(super) struct Sites {
    pub usual: Site,
    pub without: Option<Site>,
}

impl Sites {
    /// `up` is given hosts without daemons, and starts them.
    ///
    /// # Errors
    /// Where it fails, or a daemon finds instructions that are hidden from it.
    pub(super) fn new(up: impl Fn(Site) -> Result<Site, String>) -> Result<Self, String> {
        let usual = up(Site::bare()?)?;
        let mut without = None;
        if can_hide() {
            without = Some(up(Site::bare()?.with_environment(WITHOUT_INSTRUCTIONS))?);
        }
        without.as_mut().map_or(Ok(()), check)?;
        Ok(Self { usual, without })
    }

    /// The hosts in a state.
    ///
    /// # Errors
    /// Where a daemon refuses.
    pub(super) fn turn(&mut self, state: State) -> Result<&mut Site, String> {
        match (state, &mut self.without) {
            (State::Library, Some(site)) => Ok(site),
            _ => {
                self.usual.set_in_core(state == State::InCore)?;
                Ok(&mut self.usual)
            }
        }
    }
}

/// The explanation of the states, as all reports call them.
pub(super) const STATES: &str = "*Off: RustCrypto* is `in_core_enabled=0`: the portable provider, RustCrypto's bit-sliced AES \
    and its carry-less multiplication with integers, in constant time. *Off: AWS-LC's software* is a `vpnd` whose AWS-LC finds \
    no instructions for cryptography (`OPENSSL_ia32cap`); its AES permutes the octets of vector registers (SSSE3), in constant \
    time as well. *On* is the default: AWS-LC with the processor's instructions.";

/// Returns `true` if instructions can be hidden from AWS-LC on this machine.
const fn can_hide() -> bool {
    cfg!(target_arch = "x86_64")
}

/// Checks that both daemons of a site have AWS-LC do AES in software.
///
/// # Errors
/// Where one does not, or does not answer.
fn check(site: &mut Site) -> Result<(), String> {
    for end in [0, 1] {
        let Reply::Crypto(state) = site.ask(end, Ask::Crypto)? else {
            return Err("an unexpected reply to the question about ciphers".to_owned());
        };
        let aes = state.functions.iter().filter(|f| f.function.starts_with("AES-"));
        for served in aes {
            if served.provider != "aws-lc" || served.place != "software" {
                return Err(format!(
                    "{} is done by {} in {} although its instructions are hidden",
                    served.function, served.provider, served.place
                ));
            }
        }
    }
    Ok(())
}
