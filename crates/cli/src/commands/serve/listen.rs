//! The addresses that `gannet serve` listens on.

use crate::endpoint_args::{EndpointArgs, HOST, PORT};
use crate::exit::WrongUsage;
use anyhow::{Context, Result, bail};
use server::{Listener, Tls, UnixSocket};
use std::net::IpAddr;
use std::path::PathBuf;
use tokio::net::TcpListener;

/// Arguments for addresses and TLS.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Listening")]
pub(super) struct ListenArgs {
    #[command(flatten)]
    endpoint: EndpointArgs,
    /// Permissions of the Unix socket, in octal
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = mode)]
    unix_mode: u32,
    /// TLS certificate chain of the port, in PEM format
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM format
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
}

impl ListenArgs {
    /// Settings that are in effect without being given.
    pub fn chosen(&self) -> Vec<(&'static str, String)> {
        let mut chosen = Vec::new();
        if self.endpoint.listens_on_tcp() {
            chosen.extend(self.endpoint.host.is_empty().then(|| ("host", HOST.to_string())));
            chosen.extend(self.endpoint.port.is_none().then(|| ("port", PORT.to_string())));
        }
        chosen
    }

    /// Whether it reads files that may change.
    pub fn has_files(&self) -> bool {
        self.tls_cert.is_some()
    }

    /// Binds the addresses, and returns them as clients know them. `open` says that clients need
    /// no key.
    pub async fn listen(&self, open: bool) -> Result<(Listener, Vec<String>)> {
        let tls = self.tls()?;
        let (mut listener, mut addresses) = (Listener::default(), Vec::new());
        if self.endpoint.listens_on_tcp() {
            let scheme = if tls.is_some() { "https" } else { "http" };
            for (host, tcp) in self.bind().await? {
                addresses.push(format!("{scheme}://{}", tcp.local_addr()?));
                let warnings = exposed(host, open, tls.is_some());
                warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
                listener.tcp.push(tcp);
            }
        }
        listener.tls = tls;
        if let Some(path) = &self.endpoint.unix {
            let socket = UnixSocket::bind(path, self.unix_mode);
            let cannot = || format!("cannot listen on the Unix socket {}", path.display());
            listener.unix = Some(socket.with_context(cannot)?);
            addresses.push(format!("unix:{}", path.display()));
        }
        Ok((listener, addresses))
    }

    /// Binds every address at one port: the given one, or a free one of the first address.
    async fn bind(&self) -> Result<Vec<(IpAddr, TcpListener)>> {
        let (mut bound, mut port) = (Vec::new(), None);
        for mut address in self.endpoint.sockets() {
            address.set_port(port.unwrap_or(address.port()));
            let tcp = TcpListener::bind(address).await;
            let tcp = tcp.with_context(|| format!("cannot listen on {address}"))?;
            port = Some(tcp.local_addr()?.port());
            bound.push((address.ip(), tcp));
        }
        Ok(bound)
    }

    fn tls(&self) -> Result<Option<Tls>> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(_), Some(_)) if !self.endpoint.listens_on_tcp() => {
                bail!(WrongUsage::new("--tls-cert: expected --port too, found only a Unix socket"))
            }
            (Some(cert), Some(key)) => Ok(Some(Tls::load(cert, key)?)),
            (None, None) => Ok(None),
            (Some(_), None) => {
                bail!(WrongUsage::new("--tls-cert: expected a key with it (--tls-key), found none"))
            }
            (None, Some(_)) => bail!(WrongUsage::new(
                "--tls-key: expected a certificate with it (--tls-cert), found none"
            )),
        }
    }
}

/// Warnings about a `host` that other machines can reach.
fn exposed(host: IpAddr, open: bool, tls: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    if !host.is_loopback() && open {
        warnings.push(format!(
            "listening on {host} without API keys: everyone who reaches it can use the model \
             (--api-key-file)"
        ));
    }
    if !host.is_loopback() && !tls {
        warnings.push(format!(
            "listening on {host} without TLS: keys, prompts and answers can be read in transit \
             (--tls-cert, --tls-key)"
        ));
    }
    warnings
}

/// Parses permissions such as 600 or 0660.
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
    fn listening_beyond_this_machine_warns() {
        check("127.0.0.1", true, false, 0);
        check("::1", true, false, 0);
        check("0.0.0.0", true, false, 2);
        check("::", false, false, 1);
        check("192.168.1.2", true, true, 1);
        check("0.0.0.0", false, true, 0);
    }
}
