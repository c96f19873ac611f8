//! TLS settings: judged when the connection is built, so that a wrong file is no handshake that fails a day later.

use std::time::Duration;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::BuildError;

/// What the builder was told.
#[derive(Clone, Default)]
pub(super) struct Tls {
    pub(super) ca_pem: Vec<Vec<u8>>,
    pub(super) native_roots: bool,
    pub(super) client: Option<(Vec<u8>, Vec<u8>)>,
    pub(super) domain: Option<String>,
}

impl Tls {
    /// The first setting that has no meaning without TLS.
    pub(super) fn first_set(&self) -> Option<&'static str> {
        let set = [
            ("ca_pem", !self.ca_pem.is_empty()),
            ("native_roots", self.native_roots),
            ("client_certificate", self.client.is_some()),
            ("domain", self.domain.is_some()),
        ];
        set.into_iter().find_map(|(name, is_set)| is_set.then_some(name))
    }

    /// Judges what can be judged without a server, for all endpoints alike.
    pub(super) fn check(&self) -> Result<(), BuildError> {
        for pem in &self.ca_pem {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(pem).map_err(BuildError::CaCertificate)? {
                roots.add(certificate).map_err(|error| BuildError::CaCertificate(error.to_string()))?;
            }
        }
        if let Some((certificate, key)) = &self.client {
            certificates(certificate).map_err(BuildError::ClientCertificate)?;
            // The error's own text may quote the line it stumbled over.
            PrivateKeyDer::from_pem_slice(key)
                .map_err(|_| BuildError::ClientKey("there is no private key in it".to_owned()))?;
        }
        if let Some(domain) = &self.domain
            && ServerName::try_from(domain.as_str()).is_err()
        {
            return Err(BuildError::Domain(domain.clone()));
        }
        Ok(())
    }

    /// Puts TLS onto an endpoint.
    pub(super) fn onto(&self, endpoint: Endpoint, handshake: Duration) -> Result<Endpoint, BuildError> {
        let mut config = ClientTlsConfig::new()
            .ca_certificates(self.ca_pem.iter().map(Certificate::from_pem))
            .timeout(handshake);
        if let Some(domain) = &self.domain {
            config = config.domain_name(domain);
        }
        // Own roots replace the system's: who names a private authority seldom means "or any public one".
        if self.native_roots || self.ca_pem.is_empty() {
            config = config.with_native_roots();
        }
        // All else was judged: without a client's certificate only the system's roots can be missing.
        let anonymous = endpoint.clone().tls_config(config.clone()).map_err(BuildError::NativeRoots)?;
        let Some((certificate, key)) = &self.client else { return Ok(anonymous) };
        let identity = Identity::from_pem(certificate, key);
        endpoint.tls_config(config.identity(identity)).map_err(|error| {
            let cause =
                std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            BuildError::ClientKey(format!("it cannot be used with client_certificate: {cause}"))
        })
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    if found.is_empty() { Err("there is no certificate in it".to_owned()) } else { Ok(found) }
}
