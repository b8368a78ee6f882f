//! Who may subscribe: whoever shows a token or a certificate, where either is wanted.

use std::sync::Arc;

use crate::bearer::{self, Digest, bearer};
use crate::config::model::Xds;

/// Decides who may.
pub(super) struct Guard {
    tokens: Vec<(Arc<str>, Digest)>,
    wants_certificate: bool,
}

impl Guard {
    pub(super) fn new(xds: &Xds) -> Self {
        let tokens = xds.tokens.iter().map(|token| (token.name.as_str().into(), bearer::digest(&token.secret)));
        let wants_certificate = xds.tls.as_ref().is_some_and(|tls| tls.client_ca_file.is_some());
        Self { tokens: tokens.collect(), wants_certificate }
    }

    /// Who it is, where they show it, or why they may not. `certificate` is the name in one that was found good.
    pub(super) fn admit(
        &self,
        authorization: Option<&[u8]>,
        certificate: Option<&str>,
    ) -> Result<Option<String>, &'static str> {
        if let Some(name) = certificate {
            return Ok(Some(name.to_owned()));
        }
        match authorization {
            Some(shown) if !self.tokens.is_empty() => {
                let secret = bearer(shown).ok_or("the authorization is not: Bearer SECRET")?;
                let owner = bearer::owner(secret, &self.tokens, |(_, digest)| digest);
                owner.map(|(name, _)| Some(name.to_string())).ok_or("there is no such token")
            }
            None if !self.tokens.is_empty() => Err("this needs a token, as in authorization: Bearer SECRET"),
            _ if self.wants_certificate => Err("this needs a certificate"),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::config::model::{XdsTls, XdsToken};

    fn guard(token: bool, certificate: bool) -> Guard {
        let tls = XdsTls {
            cert_file: PathBuf::new(),
            key_file: PathBuf::new(),
            client_ca_file: certificate.then(PathBuf::new),
        };
        let token = token.then(|| XdsToken { name: "edge".to_owned(), secret: "0123456789abcdef".to_owned().into() });
        let tokens = token.into_iter().collect();
        Guard::new(&Xds { listen: ([127, 0, 0, 1], 0).into(), tls: Some(tls), tokens })
    }

    #[test]
    fn without_tokens_and_certificates_everybody_may() {
        assert_eq!(guard(false, false).admit(None, None), Ok(None));
        assert_eq!(guard(false, false).admit(Some(b"Bearer whatever"), None), Ok(None));
    }

    #[test]
    fn a_token_is_wanted_and_must_be_right() {
        let guard = guard(true, false);
        assert_eq!(guard.admit(Some(b"Bearer 0123456789abcdef"), None), Ok(Some("edge".to_owned())));
        for wrong in [None, Some(&b"Bearer 0123456789abcdeF"[..]), Some(b"Basic 0123456789abcdef"), Some(b"")] {
            assert!(guard.admit(wrong, None).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn where_both_are_configured_either_will_do() {
        let guard = guard(true, true);
        assert_eq!(guard.admit(None, Some("edge-1.example")), Ok(Some("edge-1.example".to_owned())));
        assert_eq!(guard.admit(Some(b"Bearer 0123456789abcdef"), None), Ok(Some("edge".to_owned())));
        assert!(guard.admit(None, None).is_err());
    }

    #[test]
    fn a_certificate_alone_must_be_there() {
        assert_eq!(guard(false, true).admit(None, Some("a")), Ok(Some("a".to_owned())));
        assert!(guard(false, true).admit(Some(b"Bearer 0123456789abcdef"), None).is_err());
    }
}
