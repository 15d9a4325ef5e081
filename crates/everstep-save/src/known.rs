//! Chunks that confirmed parents have: what need not be stored again.

/// The chunks of recent checkpoints of one process.
#[derive(Debug, Default)]
pub struct SaveCache {}
