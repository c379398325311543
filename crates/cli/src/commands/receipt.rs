//! `gannet receipt`: checks receipts of answers.

mod verify;

use anyhow::Result;
use clap::Subcommand;

/// Check receipts of answers
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: ReceiptCommand,
}

#[derive(Debug, Subcommand)]
enum ReceiptCommand {
    Verify(Box<verify::Args>),
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        ReceiptCommand::Verify(args) => verify::run(args),
    }
}
