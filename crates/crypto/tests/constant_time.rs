//! A forged packet takes the same number of instructions wherever its ICV differs from the right one: an attacker does
//! not learn by the time how much of a guess was right.
//!
//! Counted by callgrind in the one function that opens the packet.

use crypto::{Aad, Cipher, Forged, Provider, Suite};
use policy::{Integrity, KeyBits, Secret};
use std::env;
use std::hint::black_box;
use std::process::{Command, ExitCode, Stdio};

const SUITES: [Suite; 6] = [
    Suite::AesGcm16(KeyBits::B256),
    Suite::ChaCha20Poly1305,
    Suite::AesCbcMac(KeyBits::B256, Integrity::HmacSha2_256_128),
    Suite::AesCbcMac(KeyBits::B128, Integrity::AesXcbc96),
    Suite::AesGmac(KeyBits::B128),
    Suite::NullMac(Integrity::HmacSha2_512_256),
];

const ESP: Aad<'static> = Aad::Esp { spi: 0x1234_5678, sequence: 2, esn: false };

/// The function whose instructions count; callgrind knows it by its name.
#[inline(never)]
fn open_what_was_forged(cipher: &dyn Cipher, sealed: &[u8], out: &mut [u8]) {
    assert_eq!(black_box(cipher).open(ESP, black_box(sealed), out), Err(Forged));
}

fn all() -> impl Iterator<Item = (Provider, Suite)> {
    let pairs = Provider::ALL.into_iter().flat_map(|p| SUITES.map(|suite| (p, suite)));
    pairs.filter(|(provider, suite)| provider.supports(*suite))
}

/// Compares an ICV of zeroes octet by octet, until one differs: by it, counting is known to see that.
struct Naive;

impl Cipher for Naive {
    fn seal(&self, _: &[u8], _: Aad<'_>, _: &[u8], _: &[u8], out: &mut [u8]) {
        out.fill(0);
    }

    fn open(&self, _: Aad<'_>, sealed: &[u8], _: &mut [u8]) -> Result<usize, Forged> {
        let icv = &sealed[sealed.len() - SUITES[0].icv_len()..];
        if icv.iter().any(|octet| black_box(*octet) != 0) { Err(Forged) } else { Ok(0) }
    }
}

/// Opens a packet whose ICV differs in one octet: the first one, that in the middle, or the last one. Behind the last
/// course, [`Naive`] opens it.
fn forge(course: usize, place: usize) {
    let Some((provider, suite)) = all().nth(course) else {
        let mut sealed = vec![0; 64 + SUITES[0].icv_len()];
        sealed[64 + [0, SUITES[0].icv_len() / 2, SUITES[0].icv_len() - 1][place]] ^= 0x10;
        return open_what_was_forged(&Naive, &sealed, &mut [0; 64]);
    };
    let octets = |len: usize| (0..len).map(|i| (i as u8).wrapping_mul(7)).collect::<Vec<u8>>();
    let key = Secret::new(octets(suite.key_material_len()));
    let cipher = provider.cipher(suite, &key).expect("the provider has the suite");
    let mut sealed = vec![0; suite.iv_len() + 64 + suite.icv_len()];
    cipher.seal(&octets(suite.iv_len()), ESP, &octets(64), &[], &mut sealed);
    let icv = sealed.len() - suite.icv_len();
    let at = icv + [0, suite.icv_len() / 2, suite.icv_len() - 1][place];
    sealed[at] ^= 0x10;
    open_what_was_forged(&*cipher, &sealed, &mut [0; 64]);
}

/// The instructions of the function in a process of its own.
fn instructions(course: usize, place: usize) -> u64 {
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=*open_what_was_forged*")
        .arg(env::current_exe().expect("this program"))
        .args(["--forge", &course.to_string(), &place.to_string()]);
    let output = valgrind.output().expect("valgrind starts");
    let told = String::from_utf8_lossy(&output.stderr);
    let count = told.lines().find_map(|line| line.split_once("Collected :"));
    let count = count.and_then(|(_, count)| count.trim().parse().ok());
    count.filter(|_| output.status.success()).unwrap_or_else(|| panic!("{told}"))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [flag, course, place] = &arguments[..]
        && flag == "--forge"
    {
        forge(course.parse().expect("a number"), place.parse().expect("a number"));
        return ExitCode::SUCCESS;
    }
    let valgrind = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if valgrind.is_err() {
        left_out::skip("no instructions are counted: valgrind is missing");
        return ExitCode::SUCCESS;
    }
    let naive = [0, 1, 2].map(|place| instructions(all().count(), place));
    assert!(naive[0] < naive[1] && naive[1] < naive[2], "an early end is seen: {naive:?}");
    let mut failed = false;
    for (course, (provider, suite)) in all().enumerate() {
        let counts = [0, 1, 2].map(|place| instructions(course, place));
        let is_same = counts.iter().all(|count| *count == counts[0] && *count > 0);
        println!(
            "{provider}, {suite}: {counts:?} instructions{}",
            if is_same { "" } else { ": FAILED" }
        );
        failed |= !is_same;
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
