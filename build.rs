//! Has the program built again when a migration is added: the ones that there are become part of it.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
