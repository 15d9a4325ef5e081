//! Retention and garbage collection: which checkpoints may go, and removing what nothing can ever use again.
//!
//! [`Policy`] says what to keep; [`judge`](judge::judge) applies it, purely; [`Collector::plan`] shows what would happen and
//! [`Collector::collect`] does it, by the rules G0 to G5 of `format-spec/`. Any number may run at once, and stop anywhere.

mod candidates;
mod clock;
pub mod error;
mod idle;
pub mod judge;
mod learning;
mod leftovers;
mod listing;
mod marks;
mod pass;
pub mod plan;
pub mod policy;
mod records;
pub mod report;
mod retain;
pub mod settings;
mod sizes;
mod status;
mod sweep;
mod throttle;

pub use error::GcError;
pub use judge::{Reason, Rule, Verdict};
pub use pass::{Collector, Orders};
pub use plan::{Plan, Planned};
pub use policy::Policy;
pub use report::{Collected, Failures, Skipped, Tally};
pub use settings::{Progress, Settings, Shard};
pub use status::Status;
