//! The arguments for receipts of answers.

use crate::key_file;
use anyhow::Result;
use gannet::ReceiptKey;
use std::path::PathBuf;

/// The argument for the key that signs receipts.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Receipts")]
pub(crate) struct ReceiptKeyArgs {
    /// File of 32 random bytes, the private key (Ed25519) that signs receipts
    #[arg(long, value_name = "FILE")]
    receipt_key: Option<PathBuf>,
}

/// The arguments for receipts of the server's routes.
#[cfg(feature = "serve")]
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Receipts")]
pub(crate) struct ReceiptArgs {
    /// Give a receipt of every answer, as "receipt": true in a request does, for `gannet receipt
    /// verify`
    #[arg(long)]
    receipts: bool,
    #[command(flatten)]
    key: ReceiptKeyArgs,
}

impl ReceiptKeyArgs {
    /// The key, if there is one.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is not as long as a key.
    pub fn key(&self) -> Result<Option<ReceiptKey>> {
        let Some(path) = &self.receipt_key else { return Ok(None) };
        Ok(Some(ReceiptKey::new(&key_file::read("--receipt-key", path)?)))
    }
}

#[cfg(feature = "serve")]
impl ReceiptArgs {
    /// `options` with receipts.
    ///
    /// # Errors
    ///
    /// Those of [`ReceiptKeyArgs::key`].
    pub fn over(&self, options: server::ServerOptions) -> Result<server::ServerOptions> {
        Ok(server::ServerOptions {
            receipts: self.receipts,
            receipt_key: self.key.key()?,
            ..options
        })
    }
}
