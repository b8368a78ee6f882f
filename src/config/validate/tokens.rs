//! Tokens: those of the HTTP server and of the xDS server alike.

use secrecy::{ExposeSecret, SecretString};

use super::Check;
use super::credentials::Sources;
use crate::config::environment;
use crate::config::report::{Draft, Mark};
use crate::config::tree::PlaceId;
use crate::ids::TokenName;

/// Shortest token. One of random letters and digits of this length has 95 bits: nobody guesses it over a network.
const MIN_TOKEN: usize = 16;

impl Check<'_> {
    /// The token of an entry, from where the configuration says, with the place that counts. `whose` is who would have
    /// it, and `table` the section in the name of a variable.
    pub(super) fn token_secret(
        &mut self,
        from: &Sources<'_>,
        place: PlaceId,
        name: Option<&TokenName>,
        table: &str,
    ) -> Option<(SecretString, PlaceId)> {
        let step = name.map_or_else(|| "NAME".to_owned(), |name| environment::step_name(name.as_str()));
        let secret = self.secret(from, place, &holder(name), &format!("{table}__TOKENS__{step}"))?;
        let at = self.in_use(from).first().map_or(place, |(_, place)| *place);
        self.strong(&secret, at);
        Some((secret, at))
    }

    /// Notes names of tokens that are there twice.
    pub(super) fn token_names<'t>(&mut self, names: impl Iterator<Item = Option<(&'t TokenName, PlaceId)>>) {
        let names = names.flatten().map(|(name, place)| (name.as_str(), place));
        self.once(names, |name| format!("two tokens have the name `{name}`"));
    }

    /// Notes tokens that are there twice.
    pub(super) fn tokens_differ<'t>(&mut self, secrets: impl Iterator<Item = (&'t SecretString, PlaceId)>) {
        let secrets = secrets.map(|(secret, place)| (secret.expose_secret(), place));
        self.once(secrets, |_| "two tokens are the same: nobody could tell who uses it".to_owned());
    }

    /// A token goes into a header, and must not be guessed.
    fn strong(&mut self, secret: &SecretString, place: PlaceId) {
        let secret = secret.expose_secret();
        let problem = if secret.is_empty() || secret.chars().any(char::is_control) {
            return; // That has been noted.
        } else if !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            "a token has letters, digits and punctuation of ASCII, and no blanks".to_owned()
        } else if secret.len() < MIN_TOKEN {
            format!("a token has at least {MIN_TOKEN} characters")
        } else {
            return;
        };
        self.note(Draft::error(Mark::Value(place), problem).help("make one with `openssl rand -hex 24`"));
    }
}

/// What to call who has a token.
pub(super) fn holder(name: Option<&TokenName>) -> String {
    name.map_or_else(|| "this entry".to_owned(), |name| format!("`{name}`"))
}
