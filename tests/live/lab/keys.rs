//! Certificates that nobody trusts unless told to.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::folder::Folder;

/// Writes `keys/NAME.crt` for this host with its `keys/NAME.key`, and `keys/authority.pem`, the authority it is from.
pub(crate) fn write(folder: &Folder, name: &str, host: &str) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    // Two authorities of one name would be taken for one that signs wrongly.
    authority.distinguished_name.push(DnType::CommonName, folder.path().display().to_string());
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    folder.write("keys/authority.pem", &authority.self_signed(&authority_key).unwrap().pem());
    let key = KeyPair::generate().unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let certificate = CertificateParams::new(vec![host.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    folder.write(format!("keys/{name}.crt"), &certificate.pem());
    folder.write(format!("keys/{name}.key"), &key.serialize_pem());
}
