//! `pointsman templates`: the built-in mail templates as files, to be changed.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use crate::cli::WrongUsage;
use crate::config::suggest;
use crate::notify::render::Templates;

/// Arguments of `pointsman templates`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A template in the folder that email.templates names takes the place of the built-in one of the same
name. Keep only those that you change: the others then get better with each version. `pointsman check` tries them out.

Exit codes: 0 written, 1 not all could be written (a file is never overwritten), 2 wrong usage.

Examples:
  pointsman templates                               lists them
  pointsman templates my-templates en/alarm.txt     writes one
  pointsman templates my-templates                  writes all"
)]
pub struct Args {
    /// Folder to write them to; without it, their names are listed
    folder: Option<PathBuf>,
    /// Which ones, e.g. en/alarm.txt; without any, all
    names: Vec<String>,
}

/// Lists the templates, or writes them.
///
/// # Errors
/// Where there is no template of a name, or a file cannot be written.
#[expect(clippy::needless_pass_by_value, reason = "every command takes its arguments")]
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let Some(folder) = &args.folder else {
        for (name, _) in Templates::sources() {
            writeln!(out, "{name}")?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    let chosen = chosen(&args.names)?;
    let mut kept = 0;
    for (name, text) in &chosen {
        let path = folder.join(name);
        if write_new(&path, text).with_context(|| format!("cannot write {}", path.display()))? {
            writeln!(out, "wrote {}", path.display())?;
        } else {
            kept += 1;
            writeln!(out, "left {} as it is: it exists", path.display())?;
        }
    }
    out.flush()?;
    Ok(if kept == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn chosen(names: &[String]) -> Result<Vec<(&'static str, &'static str)>, WrongUsage> {
    if names.is_empty() {
        return Ok(Templates::sources().collect());
    }
    names.iter().map(|name| named(name)).collect()
}

fn named(name: &str) -> Result<(&'static str, &'static str), WrongUsage> {
    Templates::sources().find(|(known, _)| *known == name).ok_or_else(|| {
        let close = suggest::closest(name, Templates::sources().map(|(known, _)| known));
        let hint =
            close.map_or_else(|| "`pointsman templates` lists them".to_owned(), |c| format!("did you mean {c}?"));
        WrongUsage(format!("there is no template {name}; {hint}"))
    })
}

/// Says whether the file was written; one that exists is left alone.
fn write_new(path: &Path, text: &str) -> io::Result<bool> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(mut file) => file.write_all(text.as_bytes()).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}
