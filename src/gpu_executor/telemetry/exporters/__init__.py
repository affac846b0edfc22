"""Exporters: Prometheus metrics, OpenTelemetry spans, trace files."""
