//! `ckpt-inspect` as people and scripts use it: the real binary, its output, its exit status.

mod collecting;
mod contract;
mod damage;
mod doctor;
mod hostile;
mod interrupted;
mod large;
mod looking;
mod names;
mod opened;
mod outcomes;
mod pinning;
mod refusals;
mod tool;
