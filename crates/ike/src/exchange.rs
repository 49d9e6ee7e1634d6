//! One file per exchange, both roles side by side: `ask`, `answer`, `conclude`.

pub(crate) mod address_update;
pub(crate) mod auth;
pub(crate) mod create_child;
pub(crate) mod delete;
pub(crate) mod half_open;
pub(crate) mod informational;
pub(crate) mod rekey_ike;
pub(crate) mod sa_init;
