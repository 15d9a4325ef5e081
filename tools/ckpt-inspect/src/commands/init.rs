//! `init`: make a repository.

use std::process::ExitCode;

use everstep::{Chunking, InitOptions, Repository};
use serde_json::json;

use crate::cli::InitArgs;
use crate::commands::Context;
use crate::failure::Failure;
use crate::output::{self, say};

pub(crate) fn run(context: &Context, args: &InitArgs) -> Result<ExitCode, Failure> {
    let mut chunking = Chunking::default();
    if let Some(elements) = args.block_elements {
        chunking.block_elements = elements;
    }
    let init = InitOptions { chunking, single_writer: args.single_writer };
    let repository = Repository::init(&args.url, &context.options(), init)?;
    let config = repository.config();
    if context.json {
        output::json(&json!({
            "schema": "everstep.init/1",
            "repository": repository.address(),
            "id": config.id.to_string(),
            "format": config.version_name,
            "writers": config.writers,
        }));
    } else {
        say!("made repository {} at {}", config.id, output::printable(&repository.address()));
        say!("format {}", config.version_name);
    }
    Ok(ExitCode::SUCCESS)
}
