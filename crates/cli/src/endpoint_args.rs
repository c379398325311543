//! Where a server listens: the options that `serve` and `health` share.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The default address.
pub(crate) const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The default port.
pub(crate) const PORT: u16 = 8080;

/// Arguments for the addresses of a server.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Listening")]
pub(crate) struct EndpointArgs {
    /// Address to listen on; may be repeated, or hold several separated by commas
    /// [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub host: Vec<IpAddr>,
    /// Port to listen on at every address, 0 for any free port [default: 8080]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Unix socket to listen on, instead of the port unless --host or --port is given
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,
}

impl EndpointArgs {
    /// Whether the server has a port.
    pub fn listens_on_tcp(&self) -> bool {
        self.unix.is_none() || !self.host.is_empty() || self.port.is_some()
    }

    /// The addresses to listen on, each once, in order.
    pub fn sockets(&self) -> Vec<SocketAddr> {
        let hosts = if self.host.is_empty() { &[HOST][..] } else { &self.host };
        let port = self.port.unwrap_or(PORT);
        let mut sockets = Vec::new();
        for &host in hosts {
            let socket = SocketAddr::from((host, port));
            if !sockets.contains(&socket) {
                sockets.push(socket);
            }
        }
        sockets
    }
}
