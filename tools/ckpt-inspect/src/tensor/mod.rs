//! Looking at the elements of a tensor: which of them, what they are, what they amount to, how they are laid out.

pub(crate) mod element;
pub(crate) mod layout;
pub(crate) mod slabs;
pub(crate) mod slice;
pub(crate) mod statistics;

use everstep::Bounds;
