//! Passwords, tokens and certificates: where they come from, for nodes, mail and HTTP alike.

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

/// Most of a file with a secret that is read.
const MAX_SECRET_FILE: u64 = 4096;

/// What a secret is called, and the keys of its places.
pub(super) struct Kind {
    what: &'static str,
    file: &'static str,
    variable: &'static str,
}

pub(super) const PASSWORD: Kind = Kind { what: "password", file: "password_file", variable: "password_env" };
pub(super) const TOKEN: Kind = Kind { what: "token", file: "token_file", variable: "token_env" };

/// Where a secret may stand.
pub(super) struct Sources<'a> {
    pub(super) kind: &'a Kind,
    pub(super) itself: &'a Located<SecretString>,
    pub(super) file: &'a Located<PathBuf>,
    pub(super) variable: &'a Located<String>,
}

impl Sources<'_> {
    /// The keys that are written.
    pub(super) fn given(&self) -> impl Iterator<Item = (&'static str, PlaceId)> {
        let Kind { what, file, variable } = *self.kind;
        let keys = [(what, self.itself.place), (file, self.file.place), (variable, self.variable.place)];
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

    /// The secret, from where the configuration says. One from an environment override goes before all others.
    /// `around` is where one is missed, `whose` is who would have it, and `table` the path of their table in the name of
    /// a variable.
    pub(super) fn secret(
        &mut self,
        from: &Sources<'_>,
        around: PlaceId,
        whose: &str,
        table: &str,
    ) -> Option<SecretString> {
        let Kind { what, file, .. } = *from.kind;
        match *self.in_use(from).as_slice() {
            [] => {
                self.note_no_secret(from.kind, around, whose, table);
                None
            }
            [(_, first), (key, second), ..] => {
                let draft = Draft::error(Mark::Key(second), format!("{whose} has more than one {what}"));
                self.note(
                    draft.also(Mark::Key(first), "one is here").help(format!("leave `{key}` or the other one out")),
                );
                None
            }
            [(key, place)] if key == what => {
                let secret = from.itself.get()?;
                self.credential(secret.expose_secret(), place, what);
                Some(secret.clone())
            }
            [(key, place)] if key == file => self.secret_file(from.kind, from.file.get()?, place),
            [(_, place)] => self.secret_env(from.kind, from.variable.get()?, place),
        }
    }

    /// The keys that count: those from the environment, where there is any, else all that are written.
    pub(super) fn in_use(&self, from: &Sources<'_>) -> Vec<(&'static str, PlaceId)> {
        let overriding: Vec<_> = from.given().filter(|(_, place)| self.is_overridden(*place)).collect();
        if overriding.is_empty() { from.given().collect() } else { overriding }
    }

    fn is_overridden(&self, place: PlaceId) -> bool {
        self.place(place).is_some_and(|place| place.variable.is_some())
    }

    fn note_no_secret(&mut self, kind: &Kind, around: PlaceId, whose: &str, table: &str) {
        let Kind { what, file, .. } = *kind;
        let help = format!(
            "write {}, or {}, or set the environment variable {}{table}__{}",
            self.write(what, "\"...\""),
            self.write(file, &format!("\"/etc/pointsman/{what}\"")),
            environment::PREFIX,
            what.to_ascii_uppercase(),
        );
        self.note(Draft::error(Mark::Value(around), format!("{whose} has no {what}")).help(help));
    }

    fn secret_file(&mut self, kind: &Kind, path: &Path, place: PlaceId) -> Option<SecretString> {
        let path = self.path(path);
        let shown = path.display();
        let text = match read_small(&path) {
            Ok(text) => text,
            Err(why) => {
                let message = format!("cannot read the {} from {shown}: {why}", kind.what);
                self.note(Draft::error(Mark::Value(place), message));
                return None;
            }
        };
        self.guarded(&path, place);
        let secret = text.strip_suffix('\n').unwrap_or(&text);
        let secret = secret.strip_suffix('\r').unwrap_or(secret);
        self.credential(secret, place, kind.file);
        Some(secret.to_owned().into())
    }

    /// Warns of a file with a secret that everybody can read.
    pub(super) fn guarded(&mut self, path: &Path, place: PlaceId) {
        if is_open_to_all(path) {
            let shown = path.display();
            let draft = Draft::warning(Mark::Value(place), format!("every user of this machine can read {shown}"));
            self.note(draft.help(format!("chmod 600 {shown}")));
        }
    }

    fn secret_env(&mut self, kind: &Kind, variable: &str, place: PlaceId) -> Option<SecretString> {
        let Some(secret) = (self.variables)(variable) else {
            let shown: String = variable.chars().take(80).collect();
            let message = format!("the environment variable {shown:?} that holds the {} is not set", kind.what);
            self.note(Draft::error(Mark::Value(place), message));
            return None;
        };
        self.credential(&secret, place, kind.variable);
        Some(secret.into())
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
    file.take(MAX_SECRET_FILE + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > MAX_SECRET_FILE {
        Err(format!("it has more than {MAX_SECRET_FILE} bytes"))
    } else {
        Ok(text)
    }
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
