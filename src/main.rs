//! The `pointsman` program: everything is in the library.

fn main() -> std::process::ExitCode {
    pointsman::cli::main()
}
