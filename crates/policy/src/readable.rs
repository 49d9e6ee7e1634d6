//! Errors that a person can read wherever they are printed.

/// Gives errors the `Debug` of their `Display`, since a program prints the error that its `main` returns by `Debug`.
///
/// ```
/// #[derive(thiserror::Error)]
/// #[error("UDP port {0} is taken")]
/// struct Taken(u16);
///
/// policy::readable_debug!(Taken);
///
/// assert_eq!(format!("{:?}", Taken(4500)), "UDP port 4500 is taken");
/// ```
#[macro_export]
macro_rules! readable_debug {
    ($error:ty) => {
        impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }
    };
}
