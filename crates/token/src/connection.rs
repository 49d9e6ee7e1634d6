//! A session with a token, logged in, and the keys that were found with it. It lives on the token's thread.

use crate::error::{Kind, TokenError};
use crate::mechanism;
use crate::module::Module;
use crate::object::{self, Key, KeyName};
use crate::pin::{Fingerprint, Pin};
use crate::uri::{PinSource, TokenName};
use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::MechanismType;
use cryptoki::session::{Session, UserType};
use cryptoki::slot::{Slot, TokenInfo};
use ike::proof::outside::Order;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// A token, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address {
    pub module: PathBuf,
    pub token: TokenName,
    pub pin: Option<PinSource>,
}

/// A session with a token.
pub(crate) struct Connection {
    module: Arc<Module>,
    session: Session,
    mechanisms: Vec<MechanismType>,
    keys: BTreeMap<KeyName, Key>,
}

/// A PIN that a token has refused: tokens lock themselves after a few of these.
#[derive(Default)]
pub(crate) struct RefusedPin {
    fingerprint: Option<Fingerprint>,
    /// The load of keys in which that was.
    load: Option<u64>,
}

impl RefusedPin {
    /// Returns `true` if the PIN must not be tried: it was refused before, and no operator has asked for another load.
    fn is(&self, pin: &Pin, load: Option<u64>) -> bool {
        let again = load.is_none() || load == self.load;
        again && self.fingerprint.as_ref().is_some_and(|refused| refused.is_of(pin))
    }
}

impl Connection {
    /// Finds the token, opens a session and logs in.
    pub fn open(
        address: &Address,
        refused: &mut RefusedPin,
        load: Option<u64>,
    ) -> Result<Self, TokenError> {
        let module = Module::get(&address.module)?;
        let turn = module.turn();
        let (slot, info) = match find(&module, &address.token) {
            Err(error) if error.cause.contains("CKR_CRYPTOKI_NOT_INITIALIZED") => {
                module.initialize_again();
                find(&module, &address.token)
            }
            found => found,
        }?;
        let session = module
            .calls
            .open_ro_session(slot)
            .map_err(|error| TokenError::of_call(&error, &module.path))?;
        if info.login_required() {
            log_in(address, &session, &info, refused, load)?;
        }
        let mechanisms = mechanism::USED
            .into_iter()
            .filter(|mechanism| {
                module.calls.get_mechanism_info(slot, *mechanism).is_ok_and(|info| info.sign())
            })
            .collect();
        drop(turn);
        Ok(Self { module, session, mechanisms, keys: BTreeMap::new() })
    }

    /// The key of that name.
    pub fn key(&mut self, name: &KeyName) -> Result<Key, TokenError> {
        let module = Arc::clone(&self.module);
        let _turn = module.turn();
        let found = object::find(&self.session, &module.path, name)?;
        self.keys.insert(name.clone(), found.clone());
        Ok(found)
    }

    pub fn knows_pss(&self) -> bool {
        mechanism::knows_pss(&self.mechanisms)
    }

    pub fn sign(&mut self, name: &KeyName, order: &Order) -> Result<Vec<u8>, TokenError> {
        let key = match self.keys.get(name) {
            Some(key) => key.handle,
            None => self.key(name)?.handle,
        };
        let module = Arc::clone(&self.module);
        let _turn = module.turn();
        let Some((mechanism, octets)) = mechanism::choose(order, &self.mechanisms) else {
            return Err(TokenError::new(
                Kind::Refused,
                format!("the token cannot make signatures of the kind {}", order.scheme),
                "see its mechanisms with pkcs11-tool --list-mechanisms; use another kind of key, or a key in a file",
            ));
        };
        let signed = self.session.sign(&mechanism, key, &octets);
        signed.map_err(|error| TokenError::of_call(&error, &module.path))
    }
}

fn find(module: &Module, name: &TokenName) -> Result<(Slot, TokenInfo), TokenError> {
    let mut fitting = Vec::new();
    let mut others = Vec::new();
    for slot in module
        .calls
        .get_slots_with_token()
        .map_err(|error| TokenError::of_call(&error, &module.path))?
    {
        // It may just have been removed.
        let Ok(info) = module.calls.get_token_info(slot) else { continue };
        if !info.token_initialized() {
            continue;
        }
        let described = format!("{:?} (serial number {})", info.label(), info.serial_number());
        match fits(module, slot, &info, name) {
            true => fitting.push((slot, info, described)),
            false => others.push(described),
        }
    }
    match fitting.len() {
        1 => Ok(fitting.swap_remove(0)).map(|(slot, info, _)| (slot, info)),
        0 => Err(TokenError::new(
            Kind::Token,
            format!(
                "{name} is not there; the module {} has {}",
                module.path.display(),
                listed(&others)
            ),
            "plug the token in, or correct the URI; at the next handshake, and with vpnctl reload, vpnd looks for it again",
        )),
        _ => {
            let all: Vec<String> = fitting.into_iter().map(|(.., described)| described).collect();
            let cause = format!("several tokens are {name}: {}", listed(&all));
            Err(TokenError::new(Kind::Token, cause, "add serial=NUMBER to the URI"))
        }
    }
}

fn listed(all: &[String]) -> String {
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

fn fits(module: &Module, slot: Slot, info: &TokenInfo, name: &TokenName) -> bool {
    allows(&name.token, info.label())
        && allows(&name.manufacturer, info.manufacturer_id())
        && allows(&name.serial, info.serial_number())
        && allows(&name.model, info.model())
        && name.slot_id.is_none_or(|id| id == slot.id())
        && slot_fits(module, slot, name)
}

fn slot_fits(module: &Module, slot: Slot, name: &TokenName) -> bool {
    match (&name.slot_description, &name.slot_manufacturer) {
        (None, None) => true,
        (description, manufacturer) => module.calls.get_slot_info(slot).is_ok_and(|slot| {
            allows(description, slot.slot_description())
                && allows(manufacturer, slot.manufacturer_id())
        }),
    }
}

fn allows(wanted: &Option<String>, value: &str) -> bool {
    wanted.as_ref().is_none_or(|wanted| wanted == value)
}

fn log_in(
    address: &Address,
    session: &Session,
    info: &TokenInfo,
    refused: &mut RefusedPin,
    load: Option<u64>,
) -> Result<(), TokenError> {
    let Some(source) = &address.pin else {
        return no_login(
            "the token wants a PIN, and the URI names none".to_owned(),
            "put the PIN into a file of mode 0600, and add ?pin-source=file:/etc/vpnd/token.pin to the URI",
        );
    };
    let pin = source.read()?;
    let unlock = "set the PIN right, then log in once with pkcs11-tool --login --list-objects, and let vpnctl reload";
    if refused.is(&pin, load) {
        return no_login(
            format!(
                "the token has refused the PIN in {source} before, and vpnd does not try it again: tokens lock themselves"
            ),
            unlock,
        );
    }
    if info.user_pin_locked() {
        return no_login(
            "the PIN of the token is locked after too many wrong ones".to_owned(),
            "unlock it with the PIN of its security officer (pkcs11-tool --init-pin --login --login-type so)",
        );
    }
    if info.user_pin_final_try() {
        return no_login(
            "the token locks itself after one more wrong PIN, and vpnd leaves this try to you"
                .to_owned(),
            unlock,
        );
    }
    match session.login(UserType::User, Some(&pin.for_login())) {
        // Another session of this process has.
        Ok(()) | Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => {
            *refused = RefusedPin::default();
            Ok(())
        }
        Err(Error::Pkcs11(
            RvError::PinIncorrect | RvError::PinInvalid | RvError::PinLenRange | RvError::PinLocked,
            _,
        )) => {
            *refused = RefusedPin { fingerprint: Some(Fingerprint::of(&pin)), load };
            no_login(format!("the token refuses the PIN in {source}"), unlock)
        }
        Err(Error::Pkcs11(RvError::PinExpired | RvError::UserPinNotInitialized, _)) => no_login(
            "the token has no PIN that counts: it has expired, or none was set".to_owned(),
            "set one (pkcs11-tool --change-pin, or --init-pin for the first)",
        ),
        Err(error) => Err(TokenError::of_call(&error, &address.module)),
    }
}

fn no_login(cause: String, cure: &str) -> Result<(), TokenError> {
    Err(TokenError::new(Kind::Pin, cause, cure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_pin_is_tried_once_in_a_load_and_never_without_one() {
        let pin = Pin::of;
        let none = RefusedPin::default();
        assert!(!none.is(&pin("1234"), None) && !none.is(&pin("1234"), Some(0)));
        let refused =
            RefusedPin { fingerprint: Some(Fingerprint::of(&pin("1234"))), load: Some(7) };
        assert!(refused.is(&pin("1234"), None) && refused.is(&pin("1234"), Some(7)));
        assert!(!refused.is(&pin("1234"), Some(8)) && !refused.is(&pin("4321"), None));
        let by_itself = RefusedPin { load: None, ..refused };
        assert!(by_itself.is(&pin("1234"), None) && !by_itself.is(&pin("1234"), Some(8)));
    }
}
