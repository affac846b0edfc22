"""Telemetry: what the package records about its own work, and how that is exported.

The modules of this package hold what hot code records: histograms, metric families, stage times
and spans. They import nothing from the backends or the executors. The exporters (Prometheus,
OpenTelemetry, trace files) are in `telemetry.exporters`, above the executors in the import order.
Code below the exporters reaches them by name, with `load_exporter`.
"""

from __future__ import annotations

import importlib
from typing import Any

EXPORTERS = {
    "prometheus": "gpu_executor.telemetry.exporters.prometheus:serve_metrics",
    "trace": "gpu_executor.telemetry.exporters.trace_file:save_trace",
    "device traces": "gpu_executor.telemetry.exporters.trace_file:save_device_traces",
    "tracing": "gpu_executor.telemetry.exporters.open_telemetry:prepare_tracing",
    "tracer": "gpu_executor.telemetry.exporters.open_telemetry:get_tracer",
    "span context": "gpu_executor.telemetry.exporters.open_telemetry:get_current_context",
    "span": "gpu_executor.telemetry.exporters.open_telemetry:record_span",
}
"""Module and function of each exporter."""


def load_exporter(name: str) -> Any:
    """Import an exporter by its name in `EXPORTERS`, and return its function.

    Code that runs for every job calls this once, when its module is imported.
    """
    module, _, attribute = EXPORTERS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)
