//! The architecture is executable: dependencies point one way, rooms have their names, functions stay short.

mod dependencies;
mod tidy;
