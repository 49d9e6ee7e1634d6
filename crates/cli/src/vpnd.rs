//! The commands of `vpnd`. Each is a file with its arguments and its [`Run`](crate::commands::Run), and a line in the
//! table below.

mod check;
mod demo;
mod start;

crate::commands::table::commands! {
    /// A command of `vpnd` with its arguments.
    pub enum Command {
        Start(start::Start),
        Check(check::Check),
        Demo(demo::Demo),
    }
}
