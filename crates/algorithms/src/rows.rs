//! Values and their rows.

/// Gives each value of an enum its row, and lists the values in this order. A value without a row is an error of the
/// compiler.
macro_rules! rows {
    ($value:ident, $row:ident { $($variant:ident $(($argument:path))? => $constant:expr,)+ }) => {
        impl $value {
            /// Every value.
            pub const ALL: [Self; [$(stringify!($variant)),+].len()] =
                [$(Self::$variant $(($argument))?),+];

            /// Everything that is known about it.
            #[inline]
            pub const fn row(self) -> &'static $row {
                match self {
                    $(Self::$variant $(($argument))? => const { &$constant },)+
                }
            }
        }

        impl ::std::fmt::Display for $value {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.row().name)
            }
        }
    };
}
