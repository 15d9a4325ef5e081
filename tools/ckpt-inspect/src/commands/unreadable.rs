//! What a listing could not read: damage, and what a newer version wrote. Both are told at its end, and in its exit status.

use std::process::ExitCode;

use everstep::ErrorKind;

use crate::failure::exit_status;
use crate::output::printable;

/// What a listing calls an attempt that this version does not understand.
pub(crate) const NEWER: &str = "of a newer version";

/// The objects of a listing that could not be read, in its order.
#[derive(Debug, Default)]
pub(crate) struct Unreadable {
    pub(crate) damaged: Vec<String>,
    pub(crate) newer: Vec<String>,
}

impl Unreadable {
    /// Of each: whether a newer version wrote it, and what is wrong.
    pub(crate) fn of(objects: impl Iterator<Item = (bool, String)>) -> Self {
        let mut unreadable = Self::default();
        for (is_newer, told) in objects {
            if is_newer { unreadable.newer.push(told) } else { unreadable.damaged.push(told) }
        }
        unreadable
    }

    /// A line each, on stderr.
    pub(crate) fn tell(&self) {
        self.damaged.iter().for_each(|damage| eprintln!("damaged: {}", printable(damage)));
        self.newer.iter().for_each(|newer| eprintln!("{NEWER}: {}", printable(newer)));
    }

    /// As `verify` would end.
    pub(crate) fn exit(&self) -> ExitCode {
        match (self.damaged.is_empty(), self.newer.is_empty()) {
            (true, true) => ExitCode::SUCCESS,
            (false, _) => ExitCode::from(exit_status(ErrorKind::Corrupt)),
            (true, false) => ExitCode::from(exit_status(ErrorKind::UnsupportedVersion)),
        }
    }
}
