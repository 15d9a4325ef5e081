//! The protocol against a store with scripted faults.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod adopting;
mod crashes;
mod index;
mod leases;
mod listings;
mod lost_replies;
mod pins;
mod reading;
mod requests;
mod rollback;
mod settling;
mod signs_of_life;
mod stage;
mod takeover;
mod two_writers;
mod waiting;
