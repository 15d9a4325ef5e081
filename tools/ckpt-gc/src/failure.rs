//! How the tool ends when something is wrong: one message, one exit status.

use std::process::ExitCode;

use everstep::{Error, ErrorKind};
use serde_json::json;

/// A command that did not do what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: &'static str,
    message: String,
    exit: u8,
}

impl Failure {
    /// A mistake on the command line or in a local file.
    pub(crate) fn usage(message: &str) -> Self {
        let message = message.strip_prefix("error: ").unwrap_or(message).to_owned();
        Self { kind: "usage", message, exit: 2 }
    }

    /// A local file could not be read or written.
    pub(crate) fn file(path: &std::path::Path, doing: &str, error: &std::io::Error) -> Self {
        let exit = if error.kind() == std::io::ErrorKind::NotFound { 4 } else { 3 };
        Self { kind: "file", message: format!("cannot {doing} {}: {error}", path.display()), exit }
    }

    /// Prints the message to stderr and gives the exit status.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        if json {
            let error = json!({
                "schema": "everstep.error/1", "kind": self.kind, "message": self.message, "exit": self.exit,
            });
            eprintln!("{error}");
        } else {
            eprintln!("error: {}", self.message);
        }
        ExitCode::from(self.exit)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { kind: error.kind().name(), message: error.to_string(), exit: exit_status(error.kind()) }
    }
}

/// The exit status of an error.
pub(crate) fn exit_status(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Corrupt => 1,
        ErrorKind::InvalidArgument | ErrorKind::SchemaMismatch | ErrorKind::Source => 2,
        ErrorKind::NotFound | ErrorKind::Incomplete | ErrorKind::Expired => 4,
        ErrorKind::Conflict | ErrorKind::UnsupportedVersion | ErrorKind::Untrusted => 5,
        ErrorKind::OutcomeUnknown => 6,
        // Unreachable, denied, full, and whatever a later version adds: the store would not.
        _ => 3,
    }
}
