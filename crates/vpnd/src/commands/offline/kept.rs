//! Settings for the next start of a daemon: the files that go before the settings of `vpnd.toml`.

use crate::config::Config;
use crate::crypto::service;
use crate::crypto::tunables::{TunableError, Tunables};
use crate::families::FamilySettings;
use crate::filter::{FilterSettings, KeptDefaults};
use crate::view;
use ::crypto::CryptoProviders;
use control::protocol::{CryptoState, FamiliesInfo, FamilyInfo, FilterInfo, Refusal, RefusalCode};
use esp::families::Family;
use esp::filter::FilterStatus;
use std::cell::OnceCell;
use std::io;
use std::path::Path;
use std::sync::Arc;
use userspace::workers::Workers;

/// The settings, each read when it is asked for. A remark about a file goes to standard error, after the name of the
/// command that the operator typed.
pub(super) struct Kept<'c> {
    config: &'c Config,
    command: &'c str,
    tunables: OnceCell<Tunables>,
    families: OnceCell<FamilySettings>,
    filter: OnceCell<FilterSettings>,
}

impl<'c> Kept<'c> {
    pub(super) fn new(config: &'c Config, command: &'c str) -> Self {
        let (tunables, families, filter) = Default::default();
        Self { config, command, tunables, families, filter }
    }

    pub(super) fn config(&self) -> &Config {
        self.config
    }

    pub(super) fn crypto(&self) -> CryptoState {
        service::state(self.tunables(), 0)
    }

    pub(super) fn set_crypto(
        &self,
        name: &str,
        value: Option<u64>,
    ) -> Result<CryptoState, Refusal> {
        match self.tunables().set(name, value, true) {
            Ok(_) => Ok(self.crypto()),
            Err(TunableError::File { path, source }) => Err(unwritable(&path, &source)),
            Err(error) => Err(service::refusal(&error)),
        }
    }

    pub(super) fn families(&self) -> FamiliesInfo {
        let (settings, on) = (self.family_settings(), self.family_settings().at_start());
        let families = Family::ALL.map(|family| FamilyInfo {
            family: family.name().to_owned(),
            on: on.has(family),
            default: settings.default_of(family),
            persistent: settings.persistent_of(family),
            tunnels_off: Vec::new(),
            dropped: 0,
        });
        let file = settings.file().display().to_string();
        FamiliesInfo { families: families.into(), file }
    }

    pub(super) fn set_family(&self, name: &str, on: Option<bool>) -> Result<FamiliesInfo, Refusal> {
        let family = crate::families::named(name)?;
        let settings = self.family_settings();
        settings.persist(family, on).map_err(|error| unwritable(settings.file(), &error))?;
        Ok(self.families())
    }

    pub(super) fn filter(&self) -> FilterInfo {
        let settings = self.filter_settings();
        let filter = Arc::new(settings.filter(&self.config.filter));
        view::filter(&FilterStatus { filter, ..FilterStatus::default() }, settings.file())
    }

    pub(super) fn set_filter(&self, wanted: KeptDefaults) -> Result<FilterInfo, Refusal> {
        let settings = self.filter_settings();
        settings.persist(wanted).map_err(|error| unwritable(settings.file(), &error))?;
        Ok(self.filter())
    }

    fn tunables(&self) -> &Tunables {
        self.tunables.get_or_init(|| {
            let config = &self.config.crypto;
            let providers = Arc::new(CryptoProviders::new(config.choice()));
            let (tunables, remarks) = Tunables::start(config, providers, Some(Workers::default()));
            // The daemon tells the rest at its start.
            self.remark(remarks.into_iter().filter(|remark| remark.contains(" are ignored: ")));
            tunables
        })
    }

    fn family_settings(&self) -> &FamilySettings {
        self.families.get_or_init(|| {
            let (settings, remark) = FamilySettings::read(&self.config.families);
            self.remark(remark);
            settings
        })
    }

    fn filter_settings(&self) -> &FilterSettings {
        self.filter.get_or_init(|| {
            let (settings, remark) = FilterSettings::read(&self.config.filter);
            self.remark(remark);
            settings
        })
    }

    fn remark(&self, remarks: impl IntoIterator<Item = String>) {
        remarks.into_iter().for_each(|remark| eprintln!("{}: {remark}", self.command));
    }
}

/// The refusal if a setting cannot be kept.
fn unwritable(file: &Path, error: &io::Error) -> Refusal {
    let cure = match error.kind() {
        io::ErrorKind::PermissionDenied => "; run this command as root",
        _ => "",
    };
    let message = format!("{} cannot be written: {error}{cure}", file.display());
    Refusal::new(RefusalCode::NotPossible, message)
}
