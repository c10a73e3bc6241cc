"""What the GPU's memory is used for, as torch and the driver see it. It allocates nothing, and starts no context on a CPU."""

from __future__ import annotations

import torch


def gpu_bytes() -> dict[str, float]:
    """Bytes by kind on the current CUDA device: ``allocated`` in tensors, ``reserved`` by torch's allocator, ``free`` for anybody on
    the device, and ``total``.
    """
    free, total = torch.cuda.mem_get_info()
    return {
        "allocated": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "free": free,
        "total": total,
    }
