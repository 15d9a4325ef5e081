//! `unpin`: give a pin up. Shows what it keeps, asks, acts.

use std::process::ExitCode;

use everstep::{Pinned, Repository};

use crate::cli::UnpinArgs;
use crate::commands::Context;
use crate::commands::pin::{document, place};
use crate::commands::pins::Origin;
use crate::consent;
use crate::failure::Failure;
use crate::output::{self, say, size};
use crate::place::Place;

/// Why the marker is put, for people.
const REASON: &str = "unpinned with ckpt-inspect";

/// What will be given up.
struct Plan {
    pinned: Pinned,
    origin: Origin,
}

pub(crate) fn run(context: &Context, args: &UnpinArgs) -> Result<ExitCode, Failure> {
    let (url, name) = Place::with_second(&args.place, "NAME")?;
    let repository = context.open(&url)?;
    let plan = Plan::make(&repository, &name)?;
    if !context.json {
        plan.lines().iter().for_each(|line| say!("{line}"));
    }
    consent::ask(context, args.yes, &format!("Give the pin {name} up?"))?;
    repository.unpin(&name, REASON)?;
    if context.json {
        let mut told = document(&plan.pinned);
        told["schema"] = "everstep.unpin/1".into();
        told["origin"] = plan.origin.word().into();
        output::json(&told);
    } else {
        say!("unpinned {name}");
    }
    Ok(ExitCode::SUCCESS)
}

impl Plan {
    fn make(repository: &Repository, name: &str) -> Result<Self, Failure> {
        let pinned = repository.pinned(name)?;
        Ok(Self { origin: Origin::of(repository, &pinned), pinned })
    }

    fn lines(&self) -> Vec<String> {
        let Pinned { name, of, checkpoint } = &self.pinned;
        let manifest = &checkpoint.manifest;
        let what = format!(
            "pin:{name} keeps {} (step {}, {})",
            place(of),
            manifest.step,
            size(manifest.totals.raw_bytes)
        );
        let then = match self.origin {
            Origin::There => "  that checkpoint is still there in its run: nothing is lost".to_owned(),
            Origin::Expired => {
                "  that checkpoint has EXPIRED in its run: without the pin nothing names its data any more"
                    .to_owned()
            }
            Origin::Unreadable => {
                "  that checkpoint cannot be read in its run: the pin may be all that is left of it"
                    .to_owned()
            }
        };
        vec![what, then]
    }
}
