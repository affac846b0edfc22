"""The transforms of the points of a setup: by the device as by the host."""

from __future__ import annotations

import gpu_executor as gx
from gpu_executor.kzg import cell_proofs

G1 = gx.curves.BLS12_381_G1


def test_the_device_transforms_points_as_the_host_does(gpu: gx.PersistentVulkanBackend) -> None:
    """A GPU transforms all columns of a setup; here it is one."""
    logarithms = [pow(5, each, G1.order) for each in range(cell_proofs.CELL - 1)]
    rows = (G1.generator * logarithms).reshape(-1, 1)
    found = cell_proofs._transform_on_device(gpu, gpu.to_device(rows))
    expected = cell_proofs._transform_on_host(rows)
    assert (found.to_host() == expected).all()
    root = pow(cell_proofs._find_root(), -1, G1.order)
    third = sum(a * pow(root, 3 * s, G1.order) for s, a in enumerate(logarithms))
    assert (expected[3, 0] == G1.generator * third).all()
