//! The declaration of a section, and everything that comes of it.

use crate::OutOfRange;
use std::fmt;

/// The way in which a change of the file takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applies {
    /// With `vpnctl reload`.
    Reload,
    /// When vpnd is started again.
    Restart,
}

/// A setting.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its section, without brackets.
    pub section: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its documentation, line by line, each with the blank that follows the `#`. Without lines, the setting shares
    /// those of the setting before.
    pub doc: &'static [&'static str],
    /// Writes its default in TOML.
    pub default: fn() -> String,
    /// Its range for a reader; `None`: every value of its type, or a range that the engine knows.
    pub range: fn() -> Option<String>,
    /// The way in which a change takes effect.
    pub applies: Applies,
}

/// As `section.name`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.section, self.name)
    }
}

/// A section.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Its name, without brackets.
    pub name: &'static str,
    /// Its settings, in the order of the file.
    pub keys: &'static [Key],
    /// Lines of documentation behind the last setting.
    pub after: &'static [&'static str],
}

/// As the file has it: its documentation, and each setting as a comment with its default.
impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "[{}]", self.name)?;
        for key in self.keys {
            for line in key.doc {
                writeln!(f, "#{line}")?;
            }
            writeln!(f, "#{} = {}", key.name, (key.default)())?;
        }
        self.after.iter().try_for_each(|line| writeln!(f, "#{line}"))
    }
}

/// A struct that [`section!`](macro@crate::section) has made.
pub trait Declared: Default {
    /// The section.
    const SECTION: Section;

    /// Checks every value that has a range.
    ///
    /// # Errors
    /// The first value that is out of range.
    fn check(&self) -> Result<(), OutOfRange>;

    /// For each key in turn: whether the values differ.
    fn differences(&self, other: &Self) -> Vec<bool>;

    /// The settings in which the two differ and which only a restart applies, as `section.name`.
    fn needs_restart(&self, other: &Self) -> Vec<String> {
        let keys = Self::SECTION.keys.iter().zip(self.differences(other));
        keys.filter(|(key, differs)| *differs && key.applies == Applies::Restart)
            .map(|(key, _)| key.to_string())
            .collect()
    }
}

/// Declares a section: its struct with `Default` and `Deserialize`, and its [`Declared`].
///
/// A line of a setting is
///
/// ```text
/// /// Documentation, as the file has it. Without any, the setting shares that of the setting before.
/// #[serde(deserialize_with = "…")]
/// pub NAME: TYPE = DEFAULT, range RANGE, written FUNCTION, applies Reload;
/// ```
///
/// in which everything behind the default may be absent. RANGE is a [`Range`](crate::Range) of the type. FUNCTION takes a
/// reference to a value and writes it in TOML, for types without [`Value`](crate::Value). Without `applies`, a change
/// needs a restart.
///
/// Behind the settings, `tables { … }` declares a field of tables, which has no line in the file, and `after { … }`
/// documentation that ends the section.
#[macro_export]
macro_rules! section {
    (@written $value:expr) => { $crate::Value::toml($value) };
    (@written $value:expr, $written:path) => { $written($value) };
    (@range $type:ty) => { ::core::option::Option::None };
    (@range $type:ty, $range:expr) => { $crate::Range::<$type>::words(&$range) };
    (@applies) => { $crate::Applies::Restart };
    (@applies $applies:ident) => { $crate::Applies::$applies };
    (
        $(#[$attribute:meta])*
        $section_vis:vis struct $struct_name:ident = $section:literal {
            $(
                $(#[doc = $doc:literal])*
                $(#[serde($($serde:tt)*)])?
                $vis:vis $field:ident : $type:ty = $default:expr
                $(, range $range:expr)?
                $(, written $written:path)?
                $(, applies $applies:ident)?
                ;
            )*
        }
        $(tables {
            $(#[doc = $table_doc:literal])*
            $table_vis:vis $table:ident : $table_type:ty
        })?
        $(after { $(#[doc = $after:literal])* })?
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, ::serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        // The documentation is that of the file, which is no Markdown.
        #[allow(missing_docs, rustdoc::all)]
        $section_vis struct $struct_name {
            $(
                $(#[doc = $doc])*
                $(#[serde($($serde)*)])?
                $vis $field: $type,
            )*
            $(
                $(#[doc = $table_doc])*
                $table_vis $table: $table_type,
            )?
        }

        impl ::core::default::Default for $struct_name {
            fn default() -> Self {
                Self {
                    $( $field: $default, )*
                    $( $table: ::core::default::Default::default(), )?
                }
            }
        }

        impl $crate::Declared for $struct_name {
            const SECTION: $crate::Section = $crate::Section {
                name: $section,
                keys: &[
                    $( $crate::Key {
                        section: $section,
                        name: ::core::stringify!($field),
                        doc: &[$($doc),*],
                        default: || $crate::section!(
                            @written &<$struct_name as ::core::default::Default>::default().$field
                            $(, $written)?
                        ),
                        range: || $crate::section!(@range $type $(, $range)?),
                        applies: $crate::section!(@applies $($applies)?),
                    }, )*
                ],
                after: &[$($($after),*)?],
            };

            fn check(&self) -> ::core::result::Result<(), $crate::OutOfRange> {
                $( $(
                    $crate::in_range($section, ::core::stringify!($field), &self.$field, &$range)?;
                )? )*
                ::core::result::Result::Ok(())
            }

            fn differences(&self, other: &Self) -> ::std::vec::Vec<bool> {
                ::std::vec![$( self.$field != other.$field ),*]
            }
        }
    };
}
