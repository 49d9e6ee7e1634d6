//! Signatures per second of a key in a token, and in software beside it:
//!
//!     cargo run --release -p vpn-token --example rate -- 'pkcs11:token=vpn;object=left?module-path=…&pin-source=…'
//!
//! Each signature is that of an IKE_AUTH; the token makes one after the other. The processor time is that of the whole
//! process, module included.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PSS_SHA256, RsaKeyPair,
};
use ike::proof::outside::{Hash, Order, Scheme};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};
use token::{Keys, Settings, Uri};

/// The least time of a measurement.
const LASTING: Duration = Duration::from_secs(3);

/// Repeats until it has lasted long enough; tells the time and processor time of each.
fn measure(name: &str, mut once: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    let used = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    // The first one may load and log in.
    once()?;
    let (begun, before) = (Instant::now(), used());
    let mut count = 0;
    while begun.elapsed() < LASTING {
        once()?;
        count += 1;
    }
    let each = 1e3 / f64::from(count);
    let (ms, cpu) = (begun.elapsed().as_secs_f64() * each, (used() - before) * each);
    println!(
        "{name}: {:.0} signatures/s, {ms:.3} ms each, {cpu:.3} ms of processor time",
        1e3 / ms
    );
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let uri: Uri = std::env::args().nth(1).ok_or("name the key with a PKCS#11 URI")?.parse()?;
    let begun = Instant::now();
    let opened = Keys::new(Settings::default()).open(&uri)?;
    println!("{uri}: found within {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    let octets = vec![7; 500];
    let scheme = match opened.key.kind() {
        policy::KeyKind::Rsa => Scheme::Pss(Hash::Sha256),
        policy::KeyKind::EcdsaP384 => Scheme::Ecdsa(Hash::Sha384),
        policy::KeyKind::EcdsaP521 => Scheme::Ecdsa(Hash::Sha512),
        _ => Scheme::Ecdsa(Hash::Sha256),
    };
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || {
        measure(&format!("token, {scheme}"), || {
            let signing = opened.key.sign(Order { scheme, octets: octets.clone() });
            runtime.block_on(signing).map(drop).map_err(|e| format!("{}; {}", e.cause, e.cure))
        })?;
        let random = SystemRandom::new();
        let failed = |_| "software does not sign".to_owned();
        let ecdsa = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(failed)?;
        measure("software, ECDSA P-256", || {
            ecdsa.sign(&random, &octets).map(drop).map_err(failed)
        })?;
        for (size, name) in [(KeySize::Rsa2048, "2048"), (KeySize::Rsa3072, "3072")] {
            let rsa = RsaKeyPair::generate(size).map_err(failed)?;
            let mut signature = vec![0; rsa.public_modulus_len()];
            measure(&format!("software, RSA {name}"), || {
                rsa.sign(&RSA_PSS_SHA256, &random, &octets, &mut signature).map_err(failed)
            })?;
        }
        Ok::<(), String>(())
    })
    .await??;
    Ok(())
}
