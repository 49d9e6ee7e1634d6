//! The tables of commands of `vpnd` and `vpnctl`.

/// Makes a program's commands of a table: the name of a variant is the command's name, its help is its type's. The
/// order is that of `--help`. The commands of [`crate::shell`], which every program has, come last.
macro_rules! commands {
    ($(#[$doc:meta])* pub enum $commands:ident { $($name:ident($module:ident :: $arguments:ident),)* }) => {
        $(#[$doc])*
        #[derive(Debug, clap::Subcommand)]
        #[allow(missing_docs)]
        #[allow(clippy::large_enum_variant, reason = "there is one in a process")]
        pub enum $commands {
            $($name($module::$arguments),)*
            #[command(flatten)]
            Shell(crate::shell::ShellCommand),
        }

        impl crate::commands::Run for $commands {
            fn run(
                &self,
                session: &mut crate::commands::Session,
            ) -> Result<std::process::ExitCode, crate::commands::Failure> {
                match self {
                    $(Self::$name(command) => command.run(session),)*
                    Self::Shell(command) => {
                        command.run(&session.program, &mut session.out)?;
                        Ok(std::process::ExitCode::SUCCESS)
                    }
                }
            }
        }
    };
}
pub(crate) use commands;
