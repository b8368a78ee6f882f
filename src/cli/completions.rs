//! `pointsman completions`: the completion script of a shell.

use std::io::{self, Write};
use std::process::ExitCode;

use clap_complete::{Shell, generate};

/// Arguments of `pointsman completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pointsman completions bash > /etc/bash_completion.d/pointsman
  pointsman completions zsh > ~/.zfunc/_pointsman
  pointsman completions fish > ~/.config/fish/completions/pointsman.fish")]
pub struct Args {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Prints the script.
///
/// # Errors
/// Where stdout cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    generate(args.shell, &mut super::command(), "pointsman", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_shell_completes_every_command() {
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            generate(*shell, &mut super::super::command(), "pointsman", &mut script);
            let script = String::from_utf8(script).expect("UTF-8");
            for command in super::super::command().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
        }
    }
}
