"""KZG commitments, proofs and cells of Ethereum's blobs on a GPU, with the names of ckzg.

`import gpu_executor.kzg as ckzg` makes a program written for ckzg run unchanged. Every function has
a form on NumPy arrays with a leading axis, too, whose name ends in `_batch`. A verification of a
batch returns one boolean, as ckzg's do; `verify_kzg_proofs` returns one for each item.
"""

from gpu_executor.kzg.cells import (
    compute_cells,
    compute_cells_and_kzg_proofs,
    compute_cells_and_kzg_proofs_batch,
    compute_cells_batch,
    recover_cells_and_kzg_proofs,
    recover_cells_and_kzg_proofs_batch,
)
from gpu_executor.kzg.proofs import (
    blob_to_kzg_commitment,
    blob_to_kzg_commitment_batch,
    compute_blob_kzg_proof,
    compute_blob_kzg_proof_batch,
    compute_kzg_proof,
    compute_kzg_proof_batch,
)
from gpu_executor.kzg.setup import TrustedSetup, load_trusted_setup
from gpu_executor.kzg.verification import (
    verify_blob_kzg_proof,
    verify_blob_kzg_proof_batch,
    verify_cell_kzg_proof_batch,
    verify_kzg_proof,
    verify_kzg_proof_batch,
    verify_kzg_proofs,
)

__all__ = [
    "TrustedSetup",
    "blob_to_kzg_commitment",
    "blob_to_kzg_commitment_batch",
    "compute_blob_kzg_proof",
    "compute_blob_kzg_proof_batch",
    "compute_cells",
    "compute_cells_and_kzg_proofs",
    "compute_cells_and_kzg_proofs_batch",
    "compute_cells_batch",
    "compute_kzg_proof",
    "compute_kzg_proof_batch",
    "load_trusted_setup",
    "recover_cells_and_kzg_proofs",
    "recover_cells_and_kzg_proofs_batch",
    "verify_blob_kzg_proof",
    "verify_blob_kzg_proof_batch",
    "verify_cell_kzg_proof_batch",
    "verify_kzg_proof",
    "verify_kzg_proof_batch",
    "verify_kzg_proofs",
]
