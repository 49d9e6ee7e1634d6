//! The probe of the kernel's suites, on a kernel in memory.

use super::twin::Twin;
use crate::probe::probe_on;
use crypto::Suite;
use policy::KeyBits;

#[test]
fn an_interrupted_probe_hinders_no_later_one() {
    let suites = [Suite::AesGcm16(KeyBits::B128), Suite::AesGcm16(KeyBits::B256)];
    for orders in 0..4 {
        let mut twin = Twin::default();
        twin.tables().refuse_after = Some(orders);
        let _ = probe_on(&mut twin, &suites);
        let ability = probe_on(&mut twin, &suites);
        assert_eq!(ability.suites, suites, "order {orders} was refused");
        assert!(twin.spis().is_empty());
    }
}
