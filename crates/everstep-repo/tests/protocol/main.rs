//! The protocol against a store with scripted faults.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod crashes;
mod index;
mod listings;
mod lost_replies;
mod reading;
mod requests;
mod rollback;
mod signs_of_life;
mod stage;
mod takeover;
mod two_writers;
