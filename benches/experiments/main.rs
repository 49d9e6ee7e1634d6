//! `cargo bench --bench experiments -- NAME|all [--quick]`: the experiments of `vpn-lab`, with optimised
//! binaries of this tree.

use std::path::Path;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let of_cargo = |argument: &String| ["--bench", "--test"].contains(&argument.as_str());
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` only wants to know that it builds: it has neither root nor a quiet machine.
    if arguments.iter().any(|argument| argument == "--test") {
        return ExitCode::SUCCESS;
    }
    let arguments = arguments.iter().filter(|argument| !of_cargo(argument));
    // The program is built with the bench; reports go to measurements/ of the tree, or where --output says.
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut lab = Command::new(testkit::vpn_lab());
    match lab.args(arguments).current_dir(top).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("vpn-lab: {error}");
            ExitCode::FAILURE
        }
    }
}
