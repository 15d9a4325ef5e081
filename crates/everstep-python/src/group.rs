//! The ranks that save together.

use std::time::Duration;

use everstep::Rank;
use pyo3::prelude::*;

use crate::repository::seconds;

/// rank, world_size, deadline (seconds), and a board through which ranks meet (None: over the store).
#[pyclass(frozen, module = "everstep._everstep")]
pub(crate) struct Group {
    rank: u32,
    world_size: u32,
    deadline: Duration,
    _board: Option<Py<PyAny>>,
}

impl Group {
    pub(crate) fn inner(&self, _py: Python<'_>) -> everstep::Group {
        everstep::Group::new(Rank(self.rank), self.world_size).within(self.deadline)
    }
}

#[pymethods]
impl Group {
    #[new]
    fn new(rank: u32, world_size: u32, deadline: f64, board: Option<Py<PyAny>>) -> PyResult<Self> {
        Ok(Self { rank, world_size, deadline: seconds("deadline", deadline)?, _board: board })
    }
}
