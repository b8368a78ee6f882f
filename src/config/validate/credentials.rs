//! Passwords and certificates: where they come from, for nodes and for mail alike.

use std::fs;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};

use super::Check;
use crate::config::de::Located;
use crate::config::environment;
use crate::config::report::{Draft, Mark};
use crate::config::tree::PlaceId;

/// Longest password or user name: a line of either protocol holds about 1,000 bytes.
const MAX_CREDENTIAL: usize = 256;

/// Most of a password file that is read.
const MAX_PASSWORD_FILE: u64 = 4096;

/// Where a password may stand.
pub(super) struct Sources<'a> {
    pub(super) password: &'a Located<SecretString>,
    pub(super) file: &'a Located<PathBuf>,
    pub(super) variable: &'a Located<String>,
}

impl Sources<'_> {
    /// The keys that are written.
    pub(super) fn given(&self) -> impl Iterator<Item = (&'static str, PlaceId)> {
        let keys = [
            ("password", self.password.place),
            ("password_file", self.file.place),
            ("password_env", self.variable.place),
        ];
        keys.into_iter().filter_map(|(key, place)| Some((key, place?)))
    }
}

impl Check<'_> {
    pub(super) fn credential(&mut self, text: &str, place: PlaceId, key: &str) {
        if self.plain_text(text, place, key) && text.len() > MAX_CREDENTIAL {
            let message = format!("`{key}` is longer than {MAX_CREDENTIAL} bytes");
            self.note(Draft::error(Mark::Value(place), message));
        }
    }

    /// The password, from where the configuration says. One from an environment override goes before all others.
    /// `around` is where one is missed, `whose` is who would have it, and `table` the path of their table in the name of
    /// a variable.
    pub(super) fn password(
        &mut self,
        from: &Sources<'_>,
        around: PlaceId,
        whose: &str,
        table: &str,
    ) -> Option<SecretString> {
        let given: Vec<_> = from.given().collect();
        let overriding: Vec<_> = given.iter().copied().filter(|(_, place)| self.is_overridden(*place)).collect();
        let given = if overriding.is_empty() { given } else { overriding };
        match *given.as_slice() {
            [] => {
                self.note_no_password(around, whose, table);
                None
            }
            [(_, first), (key, second), ..] => {
                let draft = Draft::error(Mark::Key(second), format!("{whose} has more than one password"));
                self.note(
                    draft.also(Mark::Key(first), "one is here").help(format!("leave `{key}` or the other one out")),
                );
                None
            }
            [("password", place)] => {
                let password = from.password.get()?;
                self.credential(password.expose_secret(), place, "password");
                Some(password.clone())
            }
            [("password_file", place)] => self.password_file(from.file.get()?, place),
            [(_, place)] => self.password_env(from.variable.get()?, place),
        }
    }

    fn is_overridden(&self, place: PlaceId) -> bool {
        self.place(place).is_some_and(|place| place.variable.is_some())
    }

    fn note_no_password(&mut self, around: PlaceId, whose: &str, table: &str) {
        let help = format!(
            "write {}, or {}, or set the environment variable {}{table}__PASSWORD",
            self.write("password", "\"...\""),
            self.write("password_file", "\"/etc/pointsman/password\""),
            environment::PREFIX,
        );
        self.note(Draft::error(Mark::Value(around), format!("{whose} has no password")).help(help));
    }

    fn password_file(&mut self, path: &Path, place: PlaceId) -> Option<SecretString> {
        let path = self.path(path);
        let shown = path.display();
        let text = match read_small(&path) {
            Ok(text) => text,
            Err(why) => {
                self.note(Draft::error(Mark::Value(place), format!("cannot read the password from {shown}: {why}")));
                return None;
            }
        };
        if is_open_to_all(&path) {
            let draft = Draft::warning(Mark::Value(place), format!("every user of this machine can read {shown}"));
            self.note(draft.help(format!("chmod 600 {shown}")));
        }
        let password = text.strip_suffix('\n').unwrap_or(&text);
        let password = password.strip_suffix('\r').unwrap_or(password);
        self.credential(password, place, "password_file");
        Some(password.to_owned().into())
    }

    fn password_env(&mut self, variable: &str, place: PlaceId) -> Option<SecretString> {
        let Some(password) = (self.variables)(variable) else {
            let shown: String = variable.chars().take(80).collect();
            let message = format!("the environment variable {shown:?} that holds the password is not set");
            self.note(Draft::error(Mark::Value(place), message));
            return None;
        };
        self.credential(&password, place, "password_env");
        Some(password.into())
    }

    pub(super) fn ca_file(&mut self, path: &Path, place: PlaceId) {
        use rustls_pki_types::pem::PemObject;
        let shown = path.display();
        let found = rustls_pki_types::CertificateDer::pem_file_iter(path)
            .map_err(|error| error.to_string())
            .and_then(|mut found| found.next().transpose().map_err(|error| error.to_string()));
        match found {
            Ok(Some(_)) => {}
            Ok(None) => {
                self.note(Draft::error(Mark::Value(place), format!("{shown} holds no certificate in PEM form")));
            }
            Err(why) => {
                self.note(Draft::error(Mark::Value(place), format!("cannot read certificates from {shown}: {why}")));
            }
        }
    }
}

fn read_small(path: &Path) -> Result<String, String> {
    use std::io::Read;
    let mut text = String::new();
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(MAX_PASSWORD_FILE + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > MAX_PASSWORD_FILE { Err("it is too long to hold a password".to_owned()) } else { Ok(text) }
}

#[cfg(unix)]
fn is_open_to_all(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}

#[cfg(not(unix))]
fn is_open_to_all(_: &Path) -> bool {
    false
}
