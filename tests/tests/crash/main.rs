//! A save that ends at every possible call to the store: by a store that fails, and by a process that is killed.

mod killed;
mod severed;
mod states;
