//! Variables, storage, the control socket, the log.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Check;
use crate::config::log;
use crate::config::model::{Log, Storage, Variables};
use crate::config::raw;
use crate::config::report::{Draft, Mark};
use crate::config::tree::PlaceId;
use crate::control::MAX_PATH as MAX_SOCKET_PATH;

/// What the names of variables start with.
const DEFAULT_PREFIX: &str = "pm_";

/// Longest prefix: it goes into every name.
const MAX_PREFIX: usize = 32;

const DAY: u64 = 24 * 3600;

impl Check<'_> {
    pub(super) fn variables(&mut self) -> Variables {
        let default = raw::Variables::default();
        let raw = self.raw.variables.get().unwrap_or(&default);
        if let Some((prefix, place)) = raw.prefix.placed() {
            self.check_prefix(prefix, place);
        }
        let every = self.bounded(&raw.reconcile_every_sec, "reconcile_every_sec", 1..=DAY).unwrap_or(60);
        let expiry = self.bounded(&raw.astdb_expiry_sec, "astdb_expiry_sec", 10..=30 * DAY).unwrap_or(3600);
        if expiry < every.saturating_mul(2)
            && let Some(place) = raw.astdb_expiry_sec.place.or(raw.reconcile_every_sec.place)
        {
            let message = format!(
                "values in AstDB would expire after {expiry} s, and they are written again every {every} s only"
            );
            let help = "`astdb_expiry_sec` must be twice `reconcile_every_sec` or more";
            self.note(Draft::error(Mark::Value(place), message).help(help));
        }
        Variables {
            prefix: raw.prefix.get().cloned().unwrap_or_else(|| DEFAULT_PREFIX.to_owned()),
            reconcile_every: Duration::from_secs(every),
            astdb_expiry: Duration::from_secs(expiry),
        }
    }

    /// What the names of variables start with; the default where what is written is too long to be a prefix.
    pub(super) fn prefix(&self) -> &str {
        let written = self.raw.variables.get().and_then(|variables| variables.prefix.get());
        written.filter(|prefix| prefix.len() <= MAX_PREFIX).map_or(DEFAULT_PREFIX, String::as_str)
    }

    fn check_prefix(&mut self, prefix: &str, place: PlaceId) {
        let letters = prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let starts_well = prefix.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        // AstDB's family is the prefix without `_` at its end, and cannot be empty.
        let has_letter = prefix.contains(|c: char| c.is_ascii_alphabetic());
        if !letters || !starts_well || !has_letter || prefix.len() > MAX_PREFIX {
            let draft = Draft::error(Mark::Value(place), "`prefix` cannot begin the name of a variable");
            self.note(draft.help("use 1 to 32 letters, digits and '_', at least one letter, and no digit first"));
        }
    }

    pub(super) fn storage(&mut self, file: &Path) -> Storage {
        let default = raw::Storage::default();
        let raw = self.raw.storage.get().unwrap_or(&default);
        let keep_days = self.bounded(&raw.keep_days, "keep_days", 1..=3650).unwrap_or(30);
        let path = match raw.path.placed() {
            None => default_path(file, "/var/lib/pointsman", "pointsman.db"),
            Some((path, place)) => {
                let path = self.path(path);
                self.place_for_file(&path, place, "storage.path");
                path
            }
        };
        Storage { path, keep: Duration::from_secs(keep_days.saturating_mul(DAY)) }
    }

    pub(super) fn control_socket(&mut self, file: &Path) -> PathBuf {
        let Some((path, place)) = self.raw.control_socket.placed() else {
            return default_path(file, "/run/pointsman", "pointsman.sock");
        };
        let path = self.path(path);
        self.place_for_file(&path, place, "control_socket");
        if path.as_os_str().len() > MAX_SOCKET_PATH {
            let message = format!("the path of a socket has at most {MAX_SOCKET_PATH} bytes");
            self.note(Draft::error(Mark::Value(place), message));
        }
        path
    }

    /// Whether a file can be made there, as far as looking can tell.
    fn place_for_file(&mut self, path: &Path, place: PlaceId, key: &str) {
        if path.is_dir() {
            self.note(Draft::error(Mark::Value(place), format!("`{key}` is a directory: name a file in it")));
            return;
        }
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match directory.metadata() {
            Err(_) => {
                let message = format!("the directory {} does not exist yet", directory.display());
                self.note(Draft::warning(Mark::Value(place), message));
            }
            Ok(metadata) if !metadata.is_dir() => {
                self.note(Draft::error(Mark::Value(place), format!("{} is not a directory", directory.display())));
            }
            Ok(metadata) if metadata.permissions().readonly() => {
                self.note(Draft::warning(Mark::Value(place), format!("{} is read-only", directory.display())));
            }
            Ok(_) => {}
        }
    }

    pub(super) fn log(&mut self) -> Log {
        let Some(raw) = self.raw.log.get() else { return Log::default() };
        let filter = raw.filter.placed().and_then(|(filter, place)| match filter.parse::<log::Filter>() {
            Ok(filter) => Some(filter),
            Err(error) => {
                let draft = Draft::error(Mark::Value(place), format!("`filter`: {error}"));
                self.note(draft.help("write it like \"info\" or \"info,pointsman::pbx=debug\""));
                None
            }
        });
        Log { filter: filter.unwrap_or_default(), format: raw.format.get().copied().unwrap_or_default() }
    }
}

/// Where something is kept that the configuration does not place: beside the configuration, or, for one under `/etc`,
/// where such things belong. It depends on the file alone, so that every command finds the same place.
fn default_path(file: &Path, system: &str, name: &str) -> PathBuf {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    match file.parent() {
        Some(directory) if !directory.starts_with("/etc") => directory.join(name),
        _ => Path::new(system).join(name),
    }
}
