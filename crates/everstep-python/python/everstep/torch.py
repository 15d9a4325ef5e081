"""torch.distributed.checkpoint (DCP) on everstep: its planners and its `save`, `async_save` and `load`, with checkpoints that
are deduplicated, committed by one atomic write, and read slice by slice.

    import torch.distributed.checkpoint as dcp
    from everstep.torch import EverstepReader, EverstepWriter

    with run.writer() as w:
        dcp.save(state, storage_writer=EverstepWriter(w, step=100))
        dcp.load(state, storage_reader=EverstepReader(run, step=100))

Errors are everstep's own, within torch's `CheckpointException`, which has them by rank in `failures`.
"""

from ._dcp_reader import EverstepReader
from ._dcp_writer import EverstepWriter

__all__ = ["EverstepReader", "EverstepWriter"]
