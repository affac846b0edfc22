"""Scrapes of a metrics server, and their samples by name and labels."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from gpu_executor.telemetry.families import MetricsEndpoint

Labels = frozenset[tuple[str, str]]


class Scraped:
    """The samples of a scrape, found by their name and some of their labels."""

    def __init__(self, text: str) -> None:
        self.families = {each.name: each for each in text_string_to_metric_families(text)}
        self._samples: dict[tuple[str, Labels], float] = {}
        for family in self.families.values():
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in self._samples, f"{key} is there twice"
                self._samples[key] = sample.value

    def all(self, name: str, **labels: str) -> dict[Labels, float]:
        wanted = set(labels.items())
        return {
            own: value
            for (found, own), value in self._samples.items()
            if found == f"gpu_executor_{name}" and wanted <= own
        }

    def one(self, name: str, **labels: str) -> float:
        (value,) = self.all(name, **labels).values()
        return value


def get(served: MetricsEndpoint, query: str = "", **headers: str) -> str:
    assert served.url is not None
    request = urllib.request.Request(served.url + query, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as response:
        assert response.status == 200
        text: str = response.read().decode()
        return text


def scrape(served: MetricsEndpoint) -> Scraped:
    return Scraped(get(served))


def list_metric_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "gpu-executor metrics"]
