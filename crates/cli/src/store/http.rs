//! GET requests to a hub, with redirects followed by hand: the token belongs to the hub
//! alone, and the data usually lies on other hosts.

use std::env;

use ureq::http::{HeaderMap, Response, Uri, header};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

use super::error::StoreError;
use super::limits::{CONNECT_WAIT_MAX, READ_WAIT_MAX, REDIRECTS_MAX};

/// Speaks to one hub.
#[derive(Debug)]
pub(crate) struct Client {
    agent: Agent,
    /// Scheme, host and port of the hub.
    endpoint: Uri,
    token: Option<String>,
}

impl Client {
    /// # Errors
    /// `InvalidSource` if `endpoint` is no HTTP address.
    pub(crate) fn new(
        endpoint: &str,
        token: Option<String>,
        agent: Agent,
    ) -> Result<Self, StoreError> {
        let uri = endpoint.parse::<Uri>().ok();
        let endpoint = uri
            .filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")))
            .ok_or_else(|| StoreError::InvalidSource {
                text: endpoint.to_owned(),
                expected: "HF_ENDPOINT must begin with http:// or https://",
            })?;
        Ok(Self {
            agent,
            endpoint,
            token,
        })
    }

    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// The answer to a GET of `url`, from byte `from` on if the server can do that.
    ///
    /// # Errors
    /// `Unreachable`, or `Redirect` for a chain that is not followed. Every status that is
    /// no redirect is an answer.
    pub(crate) fn get(&self, url: &str, from: u64) -> Result<Response<Body>, StoreError> {
        let mut address = url.to_owned();
        for _ in 0..=REDIRECTS_MAX {
            let mut request = self.agent.get(&address);
            if from > 0 {
                request = request.header(header::RANGE, format!("bytes={from}-"));
            }
            if let Some(token) = self.token.as_ref().filter(|_| self.is_endpoint(&address)) {
                request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
            }
            let response = request.call().map_err(|source| StoreError::Unreachable {
                url: address.clone(),
                source: Box::new(source),
            })?;
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(response);
            }
            address = redirect_target(&address, response.headers())?;
        }
        Err(StoreError::Redirect {
            url: url.to_owned(),
            target: address,
            reason: "there are too many in a row",
        })
    }

    fn is_endpoint(&self, url: &str) -> bool {
        let origin = |uri: &Uri| {
            let host = uri.host().map(str::to_ascii_lowercase);
            (uri.scheme().cloned(), host, uri.port_u16())
        };
        url.parse::<Uri>()
            .is_ok_and(|uri| origin(&uri) == origin(&self.endpoint))
    }
}

fn redirect_target(url: &str, headers: &HeaderMap) -> Result<String, StoreError> {
    let location = headers.get(header::LOCATION);
    let target = location.and_then(|location| location.to_str().ok());
    let target = target.unwrap_or_default();
    let refuse = |reason| StoreError::Redirect {
        url: url.to_owned(),
        target: target.to_owned(),
        reason,
    };
    if let Some(path) = target.strip_prefix('/') {
        let base: Uri = url
            .parse()
            .map_err(|_uri| refuse("its base is no address"))?;
        let scheme = base.scheme_str().unwrap_or_default();
        return match path.strip_prefix('/') {
            Some(elsewhere) => Ok(format!("{scheme}://{elsewhere}")),
            None => {
                let host = base.authority().map(ToString::to_string);
                Ok(format!("{scheme}://{}/{path}", host.unwrap_or_default()))
            }
        };
    }
    if !target.starts_with("https://") && !target.starts_with("http://") {
        return Err(refuse("it is no HTTP address"));
    }
    if url.starts_with("https://") && !target.starts_with("https://") {
        return Err(refuse("it leaves the encrypted connection"));
    }
    Ok(target.to_owned())
}

/// An agent for transfers of any length: only silence has a limit.
pub(crate) fn agent(root_certificates: RootCerts) -> Agent {
    let tls = TlsConfig::builder().root_certs(root_certificates).build();
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .timeout_connect(Some(CONNECT_WAIT_MAX))
        .timeout_recv_response(Some(READ_WAIT_MAX))
        .timeout_per_read(Some(READ_WAIT_MAX))
        .user_agent(concat!("relight/", env!("CARGO_PKG_VERSION")))
        .tls_config(tls)
        .build();
    config.new_agent()
}

/// The certificates in the file that `SSL_CERT_FILE` names, as behind a proxy that signs
/// for others; without it the ones that are built in.
pub(crate) fn root_certificates() -> RootCerts {
    let pem = env::var_os("SSL_CERT_FILE").and_then(|path| std::fs::read(path).ok());
    let certificates: Vec<_> = parse_pem(&pem.unwrap_or_default())
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() {
        RootCerts::WebPki
    } else {
        RootCerts::new_with_certs(&certificates)
    }
}
