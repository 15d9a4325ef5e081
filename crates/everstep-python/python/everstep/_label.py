"""The label of the job that this process belongs to. It decides how politely a run is taken over, never what is safe."""

from __future__ import annotations

import os



def job_label(given: str | None) -> str | None:
    """`given`; else EVERSTEP_JOB, torchrun's run id unless it is the default "none", Slurm's job, or on Kubernetes the
    uid of the Job that its pod says it belongs to (through the downward API: EVERSTEP_JOB_UID, or JOB_UID)."""
    if given is not None:
        return given
    run = os.environ.get("TORCHELASTIC_RUN_ID")
    candidates = [
        os.environ.get("EVERSTEP_JOB"),
        run if run != "none" else None,
        os.environ.get("SLURM_JOB_ID") and f"slurm-{os.environ['SLURM_JOB_ID']}",
        _kubernetes(),
    ]
    return next((label for label in candidates if label), None)


def _kubernetes() -> str | None:
    if "KUBERNETES_SERVICE_HOST" not in os.environ:
        return None
    uid = os.environ.get("EVERSTEP_JOB_UID") or os.environ.get("JOB_UID")
    return f"kubernetes-{uid}" if uid else None
