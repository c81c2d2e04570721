"""One process of a JAX program over several: collectives with checks, one GPU a process."""

import os

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import rank_common as common

COUNTS = [1, 1021, 262147, 4 << 20]
AXIS = "ranks"


def pattern(count, rank, dtype):
    """`count` numbers that differ by index and rank, small enough for exact sums."""
    index = numpy.arange(count, dtype=numpy.int64)
    return ((index * 2654435761 + (rank + 1) * 40503) % 61).astype(dtype)


def programs():
    """Name -> (function of one rank's row, what the row must become, given all rows)."""
    last = common.RANKS - 1
    ring = [(rank, (rank + 1) % common.RANKS) for rank in range(common.RANKS)]
    return {
        "psum": (lambda x: jax.lax.psum(x, AXIS), lambda rows: rows.sum(0, dtype=rows.dtype)),
        "pmax": (lambda x: jax.lax.pmax(x, AXIS), lambda rows: rows.max(0)),
        "all_gather": (
            lambda x: jax.lax.all_gather(x[0], AXIS).reshape(1, -1),
            lambda rows: rows.reshape(-1),
        ),
        "ppermute": (
            lambda x: jax.lax.ppermute(x, AXIS, ring),
            lambda rows: rows[(common.RANK - 1) % common.RANKS],
        ),
        "broadcast_last": (
            lambda x: jax.lax.all_gather(x[0], AXIS)[last][None],
            lambda rows: rows[last],
        ),
    }


def check(mesh, name, count, dtype):
    """Runs one program on the mesh; returns a problem or None."""
    function, expectation = programs()[name]
    rows = numpy.stack([pattern(count, rank, dtype) for rank in range(common.RANKS)])
    spec = PartitionSpec(AXIS, None)
    mine = rows[common.RANK : common.RANK + 1]
    array = jax.make_array_from_process_local_data(NamedSharding(mesh, spec), mine)
    shard_map = getattr(jax, "shard_map", None)
    if shard_map is None:
        from jax.experimental.shard_map import shard_map
    program = jax.jit(shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec))
    result = numpy.asarray(program(array).addressable_shards[0].data)[0]
    expected = expectation(rows)
    if numpy.array_equal(result, expected):
        return None
    wrong = int((result != expected).sum()) if result.shape == expected.shape else "all"
    return f"{name} {numpy.dtype(dtype).name} {count}: {wrong} elements wrong"


def work():
    """All programs, counts and types."""
    jax.distributed.initialize(
        coordinator_address=f"127.0.0.1:{os.environ['MASTER_PORT']}",
        num_processes=common.RANKS,
        process_id=common.RANK,
        local_device_ids=[0],
    )
    devices = jax.devices()
    if len(devices) != common.RANKS or devices[0].platform not in ("gpu", "cuda"):
        return {"problems": [f"JAX sees {devices}, not {common.RANKS} GPUs"]}
    mesh = Mesh(numpy.array(devices), (AXIS,))
    problems, cases = [], 0
    for dtype in (numpy.float32, numpy.int32, jnp.bfloat16):
        for count in COUNTS:
            for name in programs():
                cases += 1
                problem = check(mesh, name, count, dtype)
                problems += [problem] if problem else []
    library = common.loaded_libnccl()
    jax.distributed.shutdown()
    return {"problems": problems, "cases": {"jax": cases}, "jax": jax.__version__,
            "libnccl": library}


if __name__ == "__main__":
    common.main(work)
