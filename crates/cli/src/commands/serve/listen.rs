//! Where `gannet serve` listens.

use anyhow::{Context, Result, bail};
use server::{Listener, Tls, UnixSocket};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use tokio::net::TcpListener;

/// The address, where none is given.
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The port, where none is given.
const PORT: u16 = 8080;

/// Where to listen, and how connections are secured.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Listening")]
pub(super) struct ListenArgs {
    /// Address to listen on; left out: 127.0.0.1
    #[arg(long, value_name = "ADDRESS")]
    host: Option<IpAddr>,
    /// Port to listen on, 0 for any that is free; left out: 8080
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Listen on a Unix socket at this path; in place of the port, unless --host or --port is
    /// given
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,
    /// Permissions of the Unix socket, in octal digits
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = mode)]
    unix_mode: u32,
    /// Secure the port with this chain of certificates, in PEM form
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The private key of the certificate, in PEM form
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
}

/// A listener, and what people are told of it.
pub(super) struct Listening {
    pub listener: Listener,
    /// Where clients find it.
    pub addresses: Vec<String>,
    /// What its owner may not have meant.
    pub warnings: Vec<String>,
}

impl ListenArgs {
    /// What is in effect though nobody said so.
    pub fn chosen(&self) -> Vec<(&'static str, String)> {
        let mut chosen = Vec::new();
        if self.listens_on_tcp() {
            chosen.extend(self.host.is_none().then(|| ("host", HOST.to_string())));
            chosen.extend(self.port.is_none().then(|| ("port", PORT.to_string())));
        }
        chosen
    }

    fn listens_on_tcp(&self) -> bool {
        self.unix.is_none() || self.host.is_some() || self.port.is_some()
    }

    /// Listens, for clients that need no key if it is `open`.
    pub async fn listen(&self, open: bool) -> Result<Listening> {
        let tls = self.tls()?;
        let (mut addresses, mut warnings) = (Vec::new(), Vec::new());
        let mut listener = Listener::default();
        if self.listens_on_tcp() {
            let (host, port) = (self.host.unwrap_or(HOST), self.port.unwrap_or(PORT));
            let tcp = TcpListener::bind((host, port)).await;
            let tcp = tcp.with_context(|| format!("cannot listen on {host}:{port}"))?;
            let scheme = if tls.is_some() { "https" } else { "http" };
            addresses.push(format!("{scheme}://{}", tcp.local_addr()?));
            warnings = exposed(host, open, tls.is_some());
            listener = tcp.into();
        }
        if let Some(tls) = tls {
            listener = listener.with_tls(tls);
        }
        if let Some(path) = &self.unix {
            listener = listener.with_unix(self.unix(path)?);
            addresses.push(format!("unix:{}", path.display()));
        }
        Ok(Listening { listener, addresses, warnings })
    }

    fn unix(&self, path: &Path) -> Result<UnixSocket> {
        UnixSocket::bind(path, self.unix_mode)
            .with_context(|| format!("cannot listen on the Unix socket {}", path.display()))
    }

    fn tls(&self) -> Result<Option<Tls>> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(_), Some(_)) if !self.listens_on_tcp() => {
                bail!("tls-cert: expected a port to secure (--port), found a Unix socket alone")
            }
            (Some(cert), Some(key)) => Ok(Some(Tls::load(cert, key)?)),
            (None, None) => Ok(None),
            (Some(_), None) => bail!("tls-cert: expected a key with it (--tls-key), found none"),
            (None, Some(_)) => {
                bail!("tls-key: expected a certificate with it (--tls-cert), found none")
            }
        }
    }
}

/// What others can do where `host` is not this machine alone.
fn exposed(host: IpAddr, open: bool, tls: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    if !host.is_loopback() && open {
        warnings.push(format!(
            "listening on {host} without API keys: whoever reaches it can use the model \
             (--api-key-file)"
        ));
    }
    if !host.is_loopback() && !tls {
        warnings.push(format!(
            "listening on {host} without TLS: keys, prompts and answers can be read on their way \
             (--tls-cert, --tls-key)"
        ));
    }
    warnings
}

/// Permissions such as 600 or 0660.
fn mode(text: &str) -> Result<u32> {
    let mode = u32::from_str_radix(text.trim_start_matches("0o"), 8).ok();
    let mode = mode.filter(|&mode| mode <= 0o777);
    mode.with_context(|| format!("expected octal digits from 0 to 777, found {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal() {
        assert_eq!(mode("600").unwrap(), 0o600);
        assert_eq!(mode("0660").unwrap(), 0o660);
        assert_eq!(mode("0o777").unwrap(), 0o777);
        for text in ["", "8", "1000", "-1", "rw"] {
            assert!(mode(text).is_err(), "{text}");
        }
    }

    fn check(host: &str, open: bool, tls: bool, expected: usize) {
        assert_eq!(exposed(host.parse().unwrap(), open, tls).len(), expected, "{host}");
    }

    #[test]
    fn who_listens_to_the_world_in_the_open_is_warned() {
        check("127.0.0.1", true, false, 0);
        check("::1", true, false, 0);
        check("0.0.0.0", true, false, 2);
        check("::", false, false, 1);
        check("192.168.1.2", true, true, 1);
        check("0.0.0.0", false, true, 0);
    }
}
