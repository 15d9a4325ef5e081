//! Whether somebody agrees to what cannot be undone. The plan was shown before.

use std::io::{BufRead, IsTerminal, Write};

use crate::commands::Context;
use crate::failure::Failure;

/// `Ok` when it may be done: `--yes` was given, or the person at the terminal says so.
pub(crate) fn ask(context: &Context, yes: bool, question: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if context.json || !std::io::stdin().is_terminal() {
        return Err(Failure::usage("nothing was changed: there is nobody to ask; agree with --yes"));
    }
    eprint!("{question} [y/N] ");
    let mut answer = String::new();
    // Without a prompt or an answer nobody has agreed.
    let heard = std::io::stderr().flush().and_then(|()| std::io::stdin().lock().read_line(&mut answer));
    let agreed = heard.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes");
    if agreed { Ok(()) } else { Err(Failure::declined()) }
}
