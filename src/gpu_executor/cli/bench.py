"""`gpu-executor bench`: the group of all benchmark commands."""

from __future__ import annotations

import click

from gpu_executor.cli.bench_all import bench_all
from gpu_executor.cli.bench_arrays import bench_arrays
from gpu_executor.cli.bench_batch import bench_batch
from gpu_executor.cli.bench_buckets import bench_buckets
from gpu_executor.cli.bench_compare import bench_compare
from gpu_executor.cli.bench_executor import bench_executor
from gpu_executor.cli.bench_fields import bench_fields
from gpu_executor.cli.bench_groth16 import bench_groth16
from gpu_executor.cli.bench_hashes import bench_hashes
from gpu_executor.cli.bench_host_time import bench_host_time
from gpu_executor.cli.bench_interfaces import bench_interfaces
from gpu_executor.cli.bench_kernels import bench_kernels
from gpu_executor.cli.bench_kzg import bench_kzg
from gpu_executor.cli.bench_msm import bench_msm
from gpu_executor.cli.bench_ntt import bench_ntt
from gpu_executor.cli.bench_opening import bench_opening
from gpu_executor.cli.bench_peers import bench_peers
from gpu_executor.cli.bench_persistent import bench_persistent
from gpu_executor.cli.bench_stream import bench_stream
from gpu_executor.cli.options import use_usual_forms


@click.group()
@click.pass_context
def bench(context: click.Context) -> None:
    """Benchmark this machine."""
    context.with_resource(use_usual_forms())


bench.add_command(bench_all)
bench.add_command(bench_arrays)
bench.add_command(bench_batch)
bench.add_command(bench_buckets)
bench.add_command(bench_compare)
bench.add_command(bench_executor)
bench.add_command(bench_fields)
bench.add_command(bench_groth16)
bench.add_command(bench_hashes)
bench.add_command(bench_host_time)
bench.add_command(bench_interfaces)
bench.add_command(bench_kernels)
bench.add_command(bench_kzg)
bench.add_command(bench_msm)
bench.add_command(bench_ntt)
bench.add_command(bench_opening)
bench.add_command(bench_peers)
bench.add_command(bench_persistent)
bench.add_command(bench_stream)
