//! Has the program built again when a migration is added: the ones that there are become part of it.

#[expect(clippy::print_stdout, reason = "this is how a build script talks to cargo")]
fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
