//! The S3 store against a stub with scripted faults, and against real servers where only those can tell.

#![allow(clippy::unwrap_used, reason = "nothing here runs outside tests")]

mod answers;
mod child;
mod clocks;
mod clouds;
mod compatible;
mod credentials;
mod crowd;
mod endpoints;
mod faults;
mod keys;
mod permissions;
mod stores;
mod tls;
mod whole;
