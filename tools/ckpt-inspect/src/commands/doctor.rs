//! `doctor`: look at a store. What is wrong is the answer, not an error: the worst check gives the exit status.

use std::process::ExitCode;
use std::time::Duration;

use everstep::doctor::{Check, Health, Seen, Side, diagnose, meet};
use serde_json::{Value, json};

use crate::cli::DoctorArgs;
use crate::commands::Context;
use crate::failure::Failure;
use crate::output::{self, printable, say};

pub(crate) fn run(context: &Context, args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let side = match (&args.listen, &args.echo) {
        (Some(name), _) => Some((name.as_str(), Side::Listen)),
        (None, Some(name)) => Some((name.as_str(), Side::Echo)),
        (None, None) => None,
    };
    let checks = match side {
        Some(side) => vec![two_hosts(context, args, side)?],
        None => diagnose(&args.url, &context.options())?,
    };
    if context.json {
        output::json(&document(&args.url, &checks));
    } else {
        checks.iter().for_each(print);
    }
    Ok(ExitCode::from(exit_status(&checks)))
}

/// What two hosts, of which this is one, see of each other.
fn two_hosts(context: &Context, args: &DoctorArgs, side: (&str, Side)) -> Result<Check, Failure> {
    if !context.json && side.1 == Side::Listen {
        eprintln!("waiting for `ckpt-inspect doctor --echo {}` on the other host", side.0);
    }
    let seen = meet(&args.url, &context.options(), side, Duration::from_secs(args.patience))?;
    let Seen { keys, late, longest_delay, left } = seen;
    let stay = if left == 0 { String::new() } else { format!("; {left} small keys below probe/ stay") };
    let name = "two-hosts";
    Ok(match late {
        0 => Check::new(name, Health::Sound, format!("listings showed each of {keys} objects at once{stay}")),
        late => {
            let delay = longest_delay.as_secs_f64();
            let found = format!("listings showed {late} of {keys} objects late, up to {delay:.3} s{stay}");
            Check::new(name, Health::Refused, found).advise(
                "do not let two hosts share this repository: mount the directory without caching of attributes and \
                 lookups, or use an object store",
            )
        }
    })
}

fn exit_status(checks: &[Check]) -> u8 {
    match checks.iter().map(|check| check.health).max() {
        Some(Health::Refused) => 5,
        Some(Health::Failed) => 3,
        _ => 0,
    }
}

fn document(url: &str, checks: &[Check]) -> Value {
    let check = |check: &Check| {
        json!({
            "name": check.name,
            "health": check.health.name(),
            "found": check.found,
            "advice": check.advice,
        })
    };
    json!({
        "schema": "everstep.doctor/1",
        "url": url,
        "exit": exit_status(checks),
        "checks": checks.iter().map(check).collect::<Vec<_>>(),
    })
}

fn print(check: &Check) {
    say!("{:<8} {:<12} {}", check.health.name(), check.name, printable(&check.found));
    if !check.advice.is_empty() {
        say!("{:<21} -> {}", "", check.advice);
    }
}
