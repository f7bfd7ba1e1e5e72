"""Processes of DistributedDataParallel score as one; FSDP is refused."""

import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import residual_model
from tests.support.processes import run_script

X, Y = np.ones((4, 5, 8), "float32"), np.zeros((4, 5, 1), "float32")


@pytest.mark.daily()
def test_distributed_data_parallel():
    assert "equal" in run_script("ddp_script")


def test_fsdp_is_refused(tmp_path):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        model = residual_model((16,))
        model.compile("sgd", "mse")
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        with pytest.raises(ValueError, match="FSDPModule"):
            model.fit(X, Y, callbacks=[ki.IdeaPruneCallback(4, 0, 1)], verbose=0)
    finally:
        dist.destroy_process_group()
