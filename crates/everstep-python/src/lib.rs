//! The compiled half of the Python package `everstep`: arguments into Rust, results and errors back, and nothing else. What
//! it offers is in `python/everstep/_everstep.pyi`; what is public is in the Python half.
//!
//! Every call gives the GIL up while it works, ends at Ctrl-C, and turns a panic into an exception (`call`). Objects belong
//! to the process that made them (`home`). Memory that Python owns is reached in `memory`, the only `unsafe` there is.

mod arena;
mod call;
mod checkpoint;
mod dicts;
mod error;
mod expirer;
mod group;
mod home;
mod load;
mod member;
mod memory;
mod options;
mod progress;
mod repository;
mod state;
mod value;
mod writer;

use pyo3::prelude::*;

/// The compiled half of `everstep`; private.
#[pymodule]
mod _everstep {
    #[pymodule_export]
    use crate::arena::Arena;
    #[pymodule_export]
    use crate::checkpoint::{Checkpoint, Lease};
    #[pymodule_export]
    use crate::error::set_error_types;
    #[pymodule_export]
    use crate::expirer::Expirer;
    #[pymodule_export]
    use crate::group::Group;
    #[pymodule_export]
    use crate::member::Member;
    #[pymodule_export]
    use crate::memory::Region;
    #[pymodule_export]
    use crate::progress::{Progress, cancel};
    #[pymodule_export]
    use crate::repository::Repository;
    #[pymodule_export]
    use crate::value::{Opaque, decode, encode};
    #[pymodule_export]
    use crate::writer::Writer;
}
