//! Figures of a run for the textfile collector of Prometheus. The file appears whole or not at all.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use everstep::gc::Collected;
use jiff::Timestamp;

use crate::failure::Failure;

/// Writes the figures of a run of `repository`; `None` when it failed.
pub(crate) fn write(path: &Path, repository: &str, done: Option<&Collected>) -> Result<(), Failure> {
    let text = text(repository, done, Timestamp::now());
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let written = tempfile::NamedTempFile::new_in(folder).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        readable_by_all(file.as_file())?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    });
    written.map_err(|error| Failure::file(path, "write", &error))
}

/// Another user's collector reads it.
fn readable_by_all(file: &std::fs::File) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        file.set_permissions(std::fs::Permissions::from_mode(0o644))?;
    }
    Ok(())
}

fn text(repository: &str, done: Option<&Collected>, now: Timestamp) -> String {
    let mut figures: Vec<(&str, &str, u64)> = vec![
        ("last_run_timestamp_seconds", "End of the last run.", u64::try_from(now.as_second()).unwrap_or(0)),
        (
            "last_run_success",
            "Whether the last run did all that it was to do.",
            u64::from(done.is_some_and(whole)),
        ),
    ];
    if let Some(done) = done {
        let freed = done.freed();
        figures.extend([
            ("kept_checkpoints", "Checkpoints that stay.", done.kept),
            ("expired_checkpoints", "Checkpoints expired by the last run.", done.expired.len() as u64),
            ("aborted_attempts", "Silent saves aborted by the last run.", done.aborted.len() as u64),
            ("ended_leases", "Silent leases ended by the last run.", done.leases_ended),
            ("dead_attempts", "Dead attempts looked at by the last run.", done.attempts),
            ("freed_objects", "Objects deleted by the last run.", freed.objects),
            ("freed_bytes", "Bytes of these.", freed.bytes),
            ("forgotten_records", "Records of sessions long gone, deleted.", done.records.objects),
            ("shared_bytes", "Bytes of dead attempts that something still uses.", done.shared.bytes),
            ("failed_deletes", "Objects that could not be deleted.", done.failed.tally.objects),
            ("failed_bytes", "Bytes of these.", done.failed.tally.bytes),
        ]);
    }
    let label = repository.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    figures.into_iter().fold(String::new(), |mut text, (name, help, value)| {
        let _ = write!(
            text,
            "# HELP everstep_gc_{name} {help}\n# TYPE everstep_gc_{name} gauge\n\
             everstep_gc_{name}{{repository=\"{label}\"}} {value}\n"
        );
        text
    })
}

/// Whether nothing was left undone.
fn whole(done: &Collected) -> bool {
    done.failed.tally.objects == 0
}
