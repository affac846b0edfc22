"""Multi-scalar multiplication (MSM): the sum of k P over many points (docs/msm.md)."""
