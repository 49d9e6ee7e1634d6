//! SAs that change their provider while packets pass, and where what they do is counted.

use super::*;
use crypto::{
    Amount, Backend, Choice, Cpu, CryptoProviders, Direction, Function, NoInstructions, Provider,
};
use policy::EspEncryption;

/// A pair on a CPU that has every instruction, whatever this one has.
fn pair(kind: Kind) -> Pair {
    let all =
        ["AES-NI", "PCLMULQDQ", "SHA-NI", "ARMv8 AES", "ARMv8 PMULL", "ARMv8 SHA2", "ARMv8 SHA512"];
    let now = Instant::now();
    let datapath = || {
        let crypto = Arc::new(CryptoProviders::on(Cpu::with(&all), Choice::default()));
        Datapath::new(Settings { crypto, ..Settings::default() }, now)
    };
    let (mut sender, mut receiver) = (datapath(), datapath());
    sender.add_rule(rule(false)).expect("a new rule");
    sender.add_outbound(kind.outbound()).expect("a new SA");
    receiver.add_inbound(kind.inbound()).expect("a new SA");
    Pair { kind, now, way_out: Mutex::new(sender.sender()), sender, receiver }
}

fn crypto(datapath: &Datapath) -> &Arc<CryptoProviders> {
    &datapath.0.settings.crypto
}

fn amounts(providers: &CryptoProviders) -> Vec<(String, Backend, u64)> {
    let work = providers.work();
    work.iter().map(|((f, _, place), done)| (f.to_string(), *place, done.operations)).collect()
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[test]
fn operations_move_from_hardware_to_software_and_back_and_no_packet_is_lost() {
    for suite in SUITES {
        let mut pair = pair(Kind { suite, ..Kind::PLAIN });
        let packet = sample::udp(false, (4000, 53), &sample::payload(1000));
        let pass = |pair: &Pair, packets| {
            for _ in 0..packets {
                let sealed = pair.protect(&packet).expect("an SA serves it");
                assert_eq!(pair.open(&sealed).as_deref(), Ok(&packet[..]), "{suite}");
            }
        };
        pass(&pair, 3);
        let accelerated = suite
            .functions()
            .any(|f| crypto(&pair.sender).backend(Provider::AwsLc, f) == Backend::Hardware);
        let changed = usize::from(accelerated);
        assert_eq!(crypto(&pair.sender).set_in_core(false), Ok(changed), "{suite}");
        // One end at a time: one seals in software, the other opens in hardware.
        pass(&pair, 4);
        assert_eq!(crypto(&pair.receiver).set_in_core(false), Ok(changed), "{suite}");
        pass(&pair, 5);
        assert_eq!(crypto(&pair.sender).set_in_core(true), Ok(changed), "{suite}");
        assert_eq!(crypto(&pair.sender).set_in_core(true), Ok(0), "{suite}");
        pass(&pair, 6);
        // Gone SAs keep their place in the sums.
        pair.sender.remove(OUT);

        for function in suite.functions() {
            let done = |datapath, direction, place| {
                let work = crypto(datapath).work();
                work.get(&(function, direction, place)).copied().unwrap_or_default()
            };
            let amount =
                |operations| Amount { operations, octets: operations * packet.len() as u64 };
            let (out, back) = (Direction::Encrypt, Direction::Decrypt);
            let hardware = |datapath, direction| done(datapath, direction, Backend::Hardware);
            let software = |datapath, direction| done(datapath, direction, Backend::Software);
            if crypto(&pair.sender).backend(Provider::AwsLc, function) == Backend::Hardware {
                assert_eq!(hardware(&pair.sender, out), amount(3 + 6), "{suite}");
                assert_eq!(software(&pair.sender, out), amount(4 + 5), "{suite}");
                assert_eq!(hardware(&pair.receiver, back), amount(3 + 4), "{suite}");
                assert_eq!(software(&pair.receiver, back), amount(5 + 6), "{suite}");
            } else {
                assert_eq!(hardware(&pair.sender, out), amount(0), "{suite}");
                assert_eq!(software(&pair.sender, out), amount(18), "{suite}");
            }
        }
    }
}

#[test]
fn a_new_sa_does_as_the_others() {
    let pair = pair(Kind::PLAIN);
    crypto(&pair.sender).set_in_core(false).expect("off is always possible");
    let mut sender = pair.sender.clone();
    sender.remove(OUT);
    sender.add_outbound(pair.kind.outbound()).expect("the name is free again");
    let packet = sample::udp(false, (4000, 53), &sample::payload(100));
    let sealed = pair.protect(&packet).expect("an SA serves it");
    assert_eq!(pair.open(&sealed), Ok(packet));
    let expected = [("AES-GCM-128".to_owned(), Backend::Software, 1)];
    assert_eq!(amounts(crypto(&sender)), expected);
}

#[test]
fn work_stays_counted_when_the_sa_or_the_datapath_is_gone() {
    let pair = pair(Kind::PLAIN);
    let packet = sample::udp(false, (4000, 53), &sample::payload(100));
    let sealed = pair.protect(&packet).expect("an SA serves it");
    assert_eq!(pair.open(&sealed), Ok(packet));
    let (out, back) = (Arc::clone(crypto(&pair.sender)), Arc::clone(crypto(&pair.receiver)));
    let Pair { mut sender, receiver, .. } = pair;
    sender.remove(OUT);
    drop(receiver);
    for providers in [out, back] {
        let operations: Vec<u64> = providers.work().values().map(|done| done.operations).collect();
        assert_eq!(operations, [1]);
    }
}

#[test]
fn a_suite_that_a_provider_lacks_comes_from_aws_lc() {
    let crypto = Arc::new(CryptoProviders::on(Cpu::with(&[]), Choice::of(Provider::Ring)));
    let settings = Settings { crypto: Arc::clone(&crypto), ..Settings::default() };
    let mut datapath = Datapath::new(settings, Instant::now());
    let kind = Kind { suite: Suite::AesGcm16(KeyBits::B192), ..Kind::PLAIN };
    datapath.add_inbound(kind.inbound()).expect("AWS-LC has it");
    assert_eq!(crypto.provider(kind.suite), Provider::AwsLc);
    assert_eq!(crypto.provider(GCM), Provider::Ring);
}

#[test]
fn instructions_that_the_cpu_lacks_cannot_be_turned_on() {
    let bare = CryptoProviders::on(Cpu::with(&[]), Choice::default());
    assert!(!bare.in_core());
    assert_eq!(bare.set_in_core(true), Err(NoInstructions));
    assert_eq!(bare.set_in_core(false), Ok(0));
    // AWS-LC's own software is faster, and nothing has been turned off.
    assert_eq!(bare.provider(GCM), Provider::AwsLc);
    assert_eq!(
        bare.backend(Provider::AwsLc, Function::Cipher(EspEncryption::AesGcm16(KeyBits::B128))),
        Backend::Software
    );
}
