//! The walk itself.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use everstep_format::FormatError;
use everstep_format::key::{Key, PackAddress, Prefix, StoredKind};
use everstep_format::name::Rank;
use everstep_repo::{Checkpoint, RepoError, Repository};
use everstep_store::{Span, Store};
use futures::stream::{self, StreamExt, TryStreamExt};
use rayon::prelude::*;

use crate::blame::{self, Blamed};
use crate::contents::{self, Contents};
use crate::garbage::{self, Inventory, Used};
use crate::history::Histories;
use crate::leases::Leases;
use crate::packs::{self, Use, Uses};
use crate::reading::get_ahead;
use crate::report::{Counts, Finding, Hurt, Report};
use crate::reuse::Parents;
use crate::{CheckError, CheckOptions, Tools};

/// Indexes held at one time: they are large, and judged one after the other.
const INDEXES_AHEAD: usize = 2;

/// Judges every invariant of `repository`, or of one checkpoint. Reads only.
///
/// # Errors
/// [`CheckError::Repo`] when the store cannot be read; damage is in the report.
pub async fn check(
    repository: &Repository,
    options: &CheckOptions,
    tools: &Tools<'_>,
) -> Result<Report, CheckError> {
    let (fresh, findings) = reopen(repository).await?;
    let walk = Walk { store: fresh.store(), repository: &fresh, deep: options.deep, tools };
    let mut report = match &options.only {
        None => walk.everything().await?,
        Some(checkpoint) => walk.only(checkpoint).await?,
    };
    report.findings.extend(findings);
    report.findings.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| a.object.cmp(&b.object)));
    Ok(report)
}

/// A handle that remembers nothing of what the caller's has read before, or damage behind its back would not show.
async fn reopen(repository: &Repository) -> Result<(Repository, Vec<Finding>), CheckError> {
    let finding = match Repository::open(Arc::clone(repository.store()), Arc::clone(repository.world())).await
    {
        Ok(fresh) => return Ok((fresh, Vec::new())),
        Err(RepoError::Object { key, source }) => Finding::unreadable(key, &source),
        Err(RepoError::NotFound(_)) => Finding::damage(Key::repository(), "it is missing"),
        Err(error) => return Err(error.into()),
    };
    let advice =
        "without it nobody can open the repository; everything else was judged with what was read before";
    Ok((repository.clone(), vec![finding.advise(advice)]))
}

/// The folder of the runs is none: there is no telling what was in it.
fn hidden(key: Key, source: &FormatError) -> Report {
    let advice =
        "put the folder back; nothing else was judged, since nobody can tell what belongs to a checkpoint";
    Report { findings: vec![Finding::unreadable(key, source).advise(advice)], counts: Counts::default() }
}

/// A pack, and what the indexes say of it.
type UsedPack<'u> = (&'u PackAddress, &'u Use);

struct Walk<'w> {
    store: &'w Arc<dyn Store>,
    repository: &'w Repository,
    deep: bool,
    tools: &'w Tools<'w>,
}

/// What the indexes of all checkpoints say.
#[derive(Default)]
struct Claims {
    /// Checkpoints that still count, as numbered in `uses`.
    checkpoints: Vec<Checkpoint>,
    uses: Uses,
    /// Indexes and refs in use.
    kept: HashSet<Key>,
    findings: Vec<Finding>,
    bytes_read: u64,
}

impl Walk<'_> {
    async fn everything(&self) -> Result<Report, CheckError> {
        let (histories, mut findings) = match Histories::read(self.repository).await {
            Err(CheckError::Repo(RepoError::Object { key, source })) => return Ok(hidden(key, &source)),
            read => read?,
        };
        let mut inventory = Inventory::default();
        inventory.add(self.store.as_ref(), &Prefix::everything()).await?;
        let claims = self.claims(histories.checkpoints()).await?;
        let standings = histories.standings();
        let leases = Leases::read(self.store.as_ref(), &inventory, &standings).await?;
        let used = Used { uses: &claims.uses, kept: &claims.kept, held: &leases.held };
        findings.extend(garbage::judge(&inventory, &used, &standings));
        findings.extend(leases.findings);
        findings.extend(garbage::judge_sessions(self.store.as_ref(), &inventory).await?);
        let mut report = self.report(claims, &inventory).await?;
        report.counts.attempts = histories.attempts() as u64;
        report.findings.extend(findings);
        Ok(report)
    }

    async fn only(&self, checkpoint: &Checkpoint) -> Result<Report, CheckError> {
        let (run, ordinal) = (&checkpoint.manifest.run, checkpoint.manifest.ordinal);
        let mut findings = Vec::new();
        if let Err(error) = self.repository.checkpoint(run, ordinal).await {
            findings.push(match error {
                RepoError::Object { key, source } => Finding::unreadable(key, &source),
                RepoError::Missing { key, because } => {
                    Finding::damage(key, "it is missing").expect(because, "nothing")
                }
                other => return Err(other.into()),
            });
        }
        let claims = self.claims(vec![checkpoint.clone()]).await?;
        let mut inventory = Inventory::default();
        for prefix in prefixes(&claims.uses) {
            inventory.add(self.store.as_ref(), &prefix).await?;
        }
        let mut report = self.report(claims, &inventory).await?;
        report.counts.attempts = 1;
        report.findings.extend(findings);
        Ok(report)
    }

    async fn claims(&self, checkpoints: Vec<Checkpoint>) -> Result<Claims, CheckError> {
        let (mut claims, mut parents) = (Claims::default(), Parents::default());
        let store = self.store.as_ref();
        let fetched = stream::iter(checkpoints.into_iter().map(|c| contents::fetch(store, c)));
        let mut fetched = std::pin::pin!(fetched.buffered(INDEXES_AHEAD));
        while let Some(fetched) = fetched.try_next().await? {
            if let Some(contents) = self.tools.pool.install(|| contents::judge(fetched)) {
                let hurt = Hurt::of(&contents.checkpoint.manifest);
                let strange = parents.judge(self.repository, &contents).await?;
                claims.findings.extend(strange.map(|finding| finding.hurting([hurt])));
                claims.add(contents);
            }
        }
        Ok(claims)
    }

    async fn report(&self, claims: Claims, inventory: &Inventory) -> Result<Report, CheckError> {
        let Claims { checkpoints, mut uses, mut findings, bytes_read, .. } = claims;
        let listed: HashMap<PackAddress, u64> = inventory.objects.iter().filter_map(pack_size).collect();
        uses.measure(&listed);
        let (mut blamed, mut sound) = (Vec::new(), Vec::new());
        for (address, used) in &uses.packs {
            match packs::judge_listed(address, used, listed.get(address).copied()) {
                Some(bad) => blamed.push(bad),
                None => sound.push((address, used)),
            }
        }
        sound.sort_by_key(|(address, _)| **address);
        let pack_bytes = if self.deep {
            self.read_packs(&sound, &mut blamed).await
        } else {
            self.read_tables(&sound, &mut blamed).await
        }?;
        findings.extend(blame::name(self.store.as_ref(), blamed, (&checkpoints, &uses)).await?);
        let counts = Counts {
            objects: inventory.objects.len() as u64,
            attempts: 0,
            checkpoints: checkpoints.len() as u64,
            packs: uses.packs.len() as u64,
            chunks: uses.chunks() as u64,
            pack_bytes: uses.bytes(),
            bytes_read: bytes_read + pack_bytes,
        };
        Ok(Report { findings, counts })
    }

    /// Reads and judges the tables of `packs`; answers bytes read.
    async fn read_tables<'p>(
        &self,
        packs: &[UsedPack<'p>],
        blamed: &mut Vec<Blamed>,
    ) -> Result<u64, CheckError> {
        self.tools.progress.planned(packs.iter().map(|(_, used)| used.len).sum());
        let judge = |(address, used): UsedPack<'p>| async move {
            packs::judge_table(self.store.as_ref(), address, used).await.map(|judged| (judged, used.len))
        };
        let mut judged = std::pin::pin!(
            stream::iter(packs.iter().copied().map(judge)).buffered(self.tools.settings.reads.max(1))
        );
        let mut bytes_read = 0;
        while let Some(((bad, read), len)) = judged.try_next().await? {
            bytes_read += read;
            blamed.extend(bad);
            self.tools.progress.checked(len);
        }
        Ok(bytes_read)
    }

    /// Reads and judges every byte of `packs`, each once; answers bytes read.
    async fn read_packs<'p>(
        &self,
        packs: &[UsedPack<'p>],
        blamed: &mut Vec<Blamed>,
    ) -> Result<u64, CheckError> {
        self.tools.progress.planned(packs.iter().map(|(_, used)| used.len).sum());
        let ahead = self.packs_ahead(packs);
        let world = (self.store, self.repository.world());
        let read = |(address, used): UsedPack<'p>| {
            let got = get_ahead(world, Key::pack(address), Span::AtMost(used.len));
            async move { got.await.map(|got| (address, used, got)) }
        };
        let batches = stream::iter(packs.iter().copied().map(read)).buffered(ahead).ready_chunks(ahead);
        let mut batches = std::pin::pin!(batches);
        let mut bytes_read = 0;
        while let Some(batch) = batches.next().await {
            let batch = batch.into_iter().collect::<Result<Vec<_>, _>>()?;
            let len: u64 = batch.iter().map(|(_, used, _)| used.len).sum();
            let judge =
                |(address, used, got): (&PackAddress, &Use, _)| packs::judge_bytes(address, used, got);
            let bad: Vec<Blamed> =
                self.tools.pool.install(|| batch.into_par_iter().flat_map_iter(judge).collect());
            blamed.extend(bad);
            bytes_read += len;
            self.tools.progress.checked(len);
        }
        Ok(bytes_read)
    }

    /// Packs that may be on their way: as many again may wait to be judged.
    fn packs_ahead(&self, packs: &[UsedPack<'_>]) -> usize {
        let largest = packs.iter().map(|(_, used)| used.len).max().unwrap_or(1).max(1);
        let fit = self.tools.settings.bytes_in_flight / (2 * largest);
        usize::try_from(fit).unwrap_or(usize::MAX).clamp(1, self.tools.settings.reads.max(1))
    }
}

impl Claims {
    fn add(&mut self, contents: Contents) {
        let Contents { checkpoint, rows, believed, findings, bytes_read } = contents;
        self.findings.extend(findings);
        self.bytes_read += bytes_read;
        self.kept.extend([checkpoint.index_key(), checkpoint.refs_key()]);
        if let Some(rows) = rows {
            self.uses.add(self.checkpoints.len(), &rows, believed);
        }
        self.checkpoints.push(checkpoint);
    }
}

fn pack_size(object: &everstep_store::Listed) -> Option<(PackAddress, u64)> {
    match object.key.kind() {
        Some(StoredKind::Pack(address)) => Some((address, object.size)),
        _ => None,
    }
}

/// The prefixes below which the packs lie.
fn prefixes(uses: &Uses) -> Vec<Prefix> {
    // Ranks that are equal modulo 16 share a prefix.
    let of = |address: &PackAddress| Prefix::packs_of(address.attempt, Rank(address.rank.0 % 16));
    let prefixes: HashSet<Prefix> = uses.packs.keys().map(of).collect();
    prefixes.into_iter().collect()
}
