//! TLS for real: certificates of our own, a server that encrypts, and everybody who must not be trusted.

use std::process::Stdio;

use holdfast_client::outbox::{Outbox, event};
use holdfast_client::{Builder, Code, Error, Holdfast};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use crate::Outcome;
use crate::peer::{Peer, listener};

type Failed = Box<dyn std::error::Error>;

/// Where the child of a test finds its server.
const ENDPOINT: &str = "HOLDFAST_CLIENT_TEST_ENDPOINT";

/// A certificate authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Result<Self, Failed> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for a name, and its key.
    pub(crate) fn issue(&self, name: &str) -> Result<(String, String), Failed> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new([name.to_owned()])?;
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        Ok((params.signed_by(&key, &self.0)?.pem(), key.serialize_pem()))
    }

    /// A server with a certificate for a name.
    fn server(&self, name: &str) -> Result<ServerTlsConfig, Failed> {
        let (certificate, key) = self.issue(name)?;
        Ok(ServerTlsConfig::new().identity(Identity::from_pem(certificate, key)))
    }
}

/// A peer that encrypts, and its endpoint by the name `localhost`.
async fn start(tls: ServerTlsConfig) -> Result<(Peer, String), Failed> {
    let (listener, address) = listener().await?;
    let peer = Peer::default();
    peer.serve(listener, Some(tls))?;
    Ok((peer, format!("https://localhost:{}", address.port())))
}

fn orders(builder: Builder) -> Result<Outbox, Failed> {
    Ok(builder.build()?.outbox("orders")?)
}

/// The error of a call that must fail, having reached nobody.
async fn failure(peer: &Peer, builder: Builder) -> Result<Error, Failed> {
    let Err(error) = orders(builder)?.stage_now([event("a")]).await else { return Err("staged".into()) };
    assert_eq!(peer.calls(), 0);
    Ok(error)
}

#[tokio::test]
async fn a_server_of_the_named_authority_is_trusted() -> Outcome {
    let authority = Authority::new()?;
    let (peer, endpoint) = start(authority.server("localhost")?).await?;
    let staged = orders(Holdfast::builder().endpoint(endpoint).ca_pem(authority.pem()))?
        .stage_now([event("a")])
        .await?;
    assert_eq!((staged.len(), peer.calls()), (1, 1));
    Ok(())
}

#[tokio::test]
async fn a_server_of_another_authority_is_not_trusted() -> Outcome {
    let (peer, endpoint) = start(Authority::new()?.server("localhost")?).await?;
    let other = Authority::new()?.pem();
    let error = failure(&peer, Holdfast::builder().endpoint(endpoint).ca_pem(other)).await?;
    assert_eq!((error.code(), error.is_certainly_not_applied()), (Code::Unavailable, true));
    assert!(error.to_string().contains("invalid peer certificate"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_server_of_another_name_is_trusted_only_if_that_name_is_given() -> Outcome {
    let authority = Authority::new()?;
    let (peer, endpoint) = start(authority.server("holdfast.internal")?).await?;
    let builder = || Holdfast::builder().endpoint(&endpoint).ca_pem(authority.pem());
    let error = failure(&peer, builder()).await?;
    assert_eq!((error.code(), error.is_certainly_not_applied()), (Code::Unavailable, true));
    assert!(error.to_string().contains("not valid for name"), "{error}");

    orders(builder().domain("holdfast.internal"))?.stage_now([event("a")]).await?;
    assert_eq!(peer.calls(), 1);
    Ok(())
}

#[tokio::test]
async fn a_server_that_wants_client_certificates_serves_only_those_it_trusts() -> Outcome {
    let (authority, clients) = (Authority::new()?, Authority::new()?);
    let tls = authority.server("localhost")?.client_ca_root(Certificate::from_pem(clients.pem()));
    let (peer, endpoint) = start(tls).await?;
    let builder = || Holdfast::builder().endpoint(&endpoint).ca_pem(authority.pem());

    // In TLS 1.3 the refusal comes after the client's part of the handshake: as a connection that breaks.
    let missing = failure(&peer, builder()).await?;
    assert_eq!(missing.reason(), None);
    let (certificate, key) = authority.issue("client")?;
    let foreign = failure(&peer, builder().client_certificate(certificate, key)).await?;
    assert_eq!(foreign.reason(), None);

    let (certificate, key) = clients.issue("client")?;
    orders(builder().client_certificate(certificate, key))?.stage_now([event("a")]).await?;
    assert_eq!(peer.calls(), 1);
    Ok(())
}

#[tokio::test]
async fn who_does_not_encrypt_and_who_does_never_talk_to_each_other() -> Outcome {
    let authority = Authority::new()?;
    let (encrypted, endpoint) = start(authority.server("localhost")?).await?;
    let error = failure(&encrypted, Holdfast::builder().endpoint(endpoint.replace("https", "http"))).await?;
    assert_eq!(error.reason(), None);

    let (listener, address) = listener().await?;
    let plain = Peer::default();
    plain.serve(listener, None)?;
    let endpoint = format!("https://localhost:{}", address.port());
    let error = failure(&plain, Holdfast::builder().endpoint(endpoint).ca_pem(authority.pem())).await?;
    assert!(error.is_certainly_not_applied(), "{error:?}");
    Ok(())
}

/// The system's authorities are those of a file that the environment names; so the client is a process of its own.
#[tokio::test]
async fn the_system_s_authorities_are_trusted_unless_others_are_named() -> Outcome {
    let authority = Authority::new()?;
    let (peer, endpoint) = start(authority.server("localhost")?).await?;
    let folder = tempfile::tempdir()?;
    let roots = folder.path().join("roots.pem");
    std::fs::write(&roots, authority.pem())?;
    let child = tokio::process::Command::new(std::env::current_exe()?)
        .args(["--exact", "tls::child_that_trusts_the_system", "--ignored", "--nocapture"])
        .env("SSL_CERT_FILE", &roots)
        .env_remove("SSL_CERT_DIR")
        .env(ENDPOINT, &endpoint)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{child:?}");
    // By default and beside an authority of one's own; not where only that one was named.
    assert_eq!(peer.calls(), 2);
    Ok(())
}

#[tokio::test]
#[ignore = "is run by the test before it"]
async fn child_that_trusts_the_system() -> Outcome {
    let endpoint = std::env::var(ENDPOINT)?;
    let builder = || Holdfast::builder().endpoint(&endpoint);
    let other = Authority::new()?.pem();
    orders(builder())?.stage_now([event("a")]).await?;
    orders(builder().ca_pem(&*other).native_roots())?.stage_now([event("a")]).await?;
    assert!(orders(builder().ca_pem(&*other))?.stage_now([event("a")]).await.is_err());
    Ok(())
}
