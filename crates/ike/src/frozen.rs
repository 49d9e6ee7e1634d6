//! The forms of values in a frozen engine. Each type is written and read beside its own file, in one named `frozen.rs`;
//! the whole is `engine/frozen.rs`.

mod proofs;
pub(crate) mod values;
