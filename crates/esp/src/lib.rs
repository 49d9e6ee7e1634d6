//! Keys and packets in, protected packets out: ESP (RFC 4301, 4303, 4106, 3948). Knows no IKE.

pub mod cipher;
pub mod plane;
