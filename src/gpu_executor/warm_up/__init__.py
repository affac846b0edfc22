"""Pipelines compiled before a work needs them."""
