//! The tables of commands of `vpnd` and `vpnctl`.

/// Makes a program's commands of a table: the name of a variant is the command's name, its help is its type's. The
/// headings and the order are those of `--help`. The commands of [`crate::shell`], which every program has, come last.
#[macro_export]
macro_rules! commands {
    ($(#[$doc:meta])* pub enum $commands:ident {
        $($heading:literal { $($name:ident($module:ident :: $arguments:ident),)* })*
    }) => {
        $(#[$doc])*
        #[derive(Debug, clap::Subcommand)]
        #[allow(missing_docs)]
        #[allow(clippy::large_enum_variant, reason = "there is one in a process")]
        pub enum $commands {
            $($($name($module::$arguments),)*)*
            #[command(flatten)]
            Shell($crate::shell::ShellCommand),
        }

        impl $commands {
            /// The headings of the commands.
            pub const HEADINGS: &[$crate::help::Heading] =
                &[$(($heading, [$(stringify!($name)),*].len())),*];

            /// The template of the program's help, with the commands below their headings.
            pub fn help_template() -> String {
                use clap::Subcommand;
                $crate::help::template(Self::augment_subcommands(clap::Command::new("")), Self::HEADINGS)
            }
        }

        impl $crate::session::Run for $commands {
            fn run(
                &self,
                session: &mut $crate::session::Session,
            ) -> Result<std::process::ExitCode, $crate::session::Failure> {
                match self {
                    $($(Self::$name(command) => command.run(session),)*)*
                    Self::Shell(command) => {
                        command.run(&session.program, &mut session.out)?;
                        Ok(std::process::ExitCode::SUCCESS)
                    }
                }
            }
        }
    };
}
