"""Tensors that are cut in many ways, and how: over a line of ranks, and over a grid of them."""

import torch
from torch.distributed.tensor import Replicate, Shard

WHOLE = {
    "rows": torch.arange(150.0).view(50, 3),
    "columns": torch.arange(30).view(3, 10),
    "few": torch.arange(6.0).view(2, 3),
    "same": torch.arange(7.0),
    "cube": torch.arange(60).view(4, 3, 5).bfloat16(),
    "none": torch.empty(0, 3),
}
ON_LINE = {
    "rows": [Shard(0)],
    "columns": [Shard(1)],
    "few": [Shard(0)],
    "same": [Replicate()],
    "cube": [Shard(2)],
    "none": [Shard(0)],
}
ON_GRID = {
    "rows": [Shard(0), Shard(1)],
    "columns": [Replicate(), Shard(0)],
    "few": [Shard(0), Shard(0)],
    "same": [Shard(0), Replicate()],
    "cube": [Shard(1), Shard(0)],
    "none": [Replicate(), Shard(1)],
}
