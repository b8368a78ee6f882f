//! Bearer tokens: what a header shows, and whose it is.

use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// A token as it is kept: the secret cannot be read from it, and every digest has the same length, so that comparing takes
/// the same time for every guess.
pub(crate) type Digest = [u8; 32];

/// The digest of a secret.
pub(crate) fn digest(secret: &SecretString) -> Digest {
    Sha256::digest(secret.expose_secret().as_bytes()).into()
}

/// Whose secret it is. All of them are compared, whichever fits.
pub(crate) fn owner<'a, T>(secret: &[u8], known: &'a [T], digest: impl Fn(&T) -> &Digest) -> Option<&'a T> {
    let given: Digest = Sha256::digest(secret).into();
    let mut found = None;
    for known in known {
        let equal: Choice = digest(known).ct_eq(&given);
        if bool::from(equal) {
            found = Some(known);
        }
    }
    found
}

/// The secret in the value of an `Authorization` header; `None` where it is not `Bearer SECRET`.
pub(crate) fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, secret) = header.split_at_checked("bearer ".len())?;
    let secret = secret.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !secret.is_empty()).then_some(secret)
}
