//! The functions of IKE on this machine beside its ciphers, which are those of ESP: PRFs, hash functions, random
//! numbers, key exchanges and signatures. PRFs are computed by the provider of their MAC; the others have no choice of
//! providers.

use super::machine::Capability;
use ::crypto::{Backend, Cpu, Function, Provider, mac};
use control::protocol::Served;
use ike::crypto::prf;
use ike::crypto::tally::Hash;
use policy::{EspEncryption, Group, KeyBits, KeyKind, Prf};

/// The function of ESP that has the instructions of a hash function: its HMAC.
pub fn hmac(hash: Hash) -> Function {
    Function::Mac(match hash {
        Hash::Sha1 => mac::Algorithm::HmacSha1,
        Hash::Sha2_256 => mac::Algorithm::HmacSha2_256,
        Hash::Sha2_384 => mac::Algorithm::HmacSha2_384,
        Hash::Sha2_512 => mac::Algorithm::HmacSha2_512,
    })
}

/// Every function of IKE, in the order of the report. `served` tells the provider of each MAC.
pub fn functions(cpu: &Cpu, served: &[Served]) -> Vec<Capability> {
    let prfs = Prf::ALL.map(|prf| {
        let mac = Function::Mac(prf::mac(prf));
        let by = served.iter().find(|served| served.function == mac.to_string());
        let by = by.map_or(Provider::AwsLc.name(), |served| &served.provider);
        let provider = Provider::ALL.into_iter().find(|p| p.name() == by).unwrap_or_default();
        let instructions = cpu.instructions(provider, mac);
        // RustCrypto's is the only one.
        let name = if prf == Prf::HmacMd5 { "rustcrypto" } else { by };
        let accelerated = !cpu.instructions(Provider::AwsLc, mac).is_empty();
        Capability { accelerated, ..row(prf.to_string(), name, instructions, None) }
    });
    let hashes = Hash::ALL.map(|hash| {
        row(hash.to_string(), "aws-lc", cpu.instructions(Provider::AwsLc, hmac(hash)), None)
    });
    // AWS-LC's generator is AES-256 in counter mode (NIST SP 800-90A).
    let aes =
        cpu.instructions(Provider::AwsLc, Function::Cipher(EspEncryption::AesCbc(KeyBits::B256)));
    let random = [
        row("random, private keys".to_owned(), "aws-lc", aes, None),
        row(
            "random, nonces and SPIs".to_owned(),
            "rand_chacha",
            Vec::new(),
            Some("ChaCha20, seeded by the system"),
        ),
    ];
    let groups = Group::ALL.map(|group| {
        let name = group.to_string();
        let provider = if name.starts_with("MODP") { "rustcrypto" } else { "aws-lc" };
        row(name, provider, Vec::new(), None)
    });
    let signatures =
        KeyKind::ALL.map(|kind| row(format!("{kind} signature"), "aws-lc", Vec::new(), None));
    prfs.into_iter().chain(hashes).chain(random).chain(groups).chain(signatures).collect()
}

fn row(
    function: String,
    provider: &str,
    instructions: Vec<&'static str>,
    note: Option<&str>,
) -> Capability {
    let place = if instructions.is_empty() { Backend::Software } else { Backend::Hardware };
    let served = Served {
        function,
        provider: provider.to_owned(),
        place: place.name().to_owned(),
        instructions: instructions.into_iter().map(str::to_owned).collect(),
        note: note.map(str::to_owned),
    };
    Capability { accelerated: place == Backend::Hardware, served }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::service::served;
    use ::crypto::CryptoProviders;

    #[test]
    fn each_function_is_there_once() {
        let rows = functions(&Cpu::detect(), &served(&CryptoProviders::default()));
        let mut names: Vec<_> = rows.iter().map(|row| &row.served.function).collect();
        assert_eq!(names.len(), 7 + 4 + 2 + 13 + 5);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), rows.len());
    }

    #[test]
    fn a_hash_function_has_the_instructions_of_its_hmac() {
        let cpu = Cpu::with(&["SHA-NI", "ARMv8 SHA2", "ARMv8 SHA512"]);
        let rows = functions(&cpu, &served(&CryptoProviders::default()));
        for hash in Hash::ALL {
            let row = rows.iter().find(|row| row.served.function == hash.to_string());
            let row = row.expect("it is listed");
            let instructions = cpu.instructions(Provider::AwsLc, hmac(hash));
            assert_eq!(
                (&row.served.provider[..], row.accelerated),
                ("aws-lc", !instructions.is_empty())
            );
            assert_eq!(row.served.instructions, instructions);
        }
        #[cfg(target_arch = "x86_64")]
        assert_eq!(
            rows.iter()
                .filter(|row| row.served.function.starts_with("SHA") && row.accelerated)
                .count(),
            2
        );
    }

    #[test]
    fn a_function_without_instructions_is_done_in_software() {
        for row in functions(&Cpu::detect(), &served(&CryptoProviders::default())) {
            let Capability { accelerated, served } = row;
            assert_eq!(accelerated, !served.instructions.is_empty(), "{served:?}");
            assert_eq!(accelerated, served.place == "hardware", "{served:?}");
            let none_made = ["MODP", "ECP", "Curve", "signature", "nonces"];
            let never = none_made.iter().any(|word| served.function.contains(word));
            assert!(!(never && accelerated), "{served:?}");
        }
    }
}
