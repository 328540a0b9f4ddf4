"""Starting services: what is said of one that does not start, and that none is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from experiments.processes import ServiceFailed, ServiceProcess, running, start
from tests.integration.services import kill

Launch = Callable[..., list[ServiceProcess]]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts decoders of the named models, which end with the test whatever it finds."""
    services: list[ServiceProcess] = []

    def started(*names: str) -> list[ServiceProcess]:
        for k, name in enumerate(names):
            services.append(start(f"decoder {k}", "decoder", ["--model", name], tmp_path / f"{k}.log"))
        return services

    yield started
    for service in services:
        kill(service)


def test_running(launch: Launch, tmp_path: Path) -> None:
    """Ready inside, each at a port of its own; ended afterwards, with exit code 0."""
    services = launch("gaussian", "gaussian")
    with running(services):
        assert len({service.address for service in services}) == 2
        assert [service.process.poll() for service in services] == [None, None]
    assert [service.process.poll() for service in services] == [0, 0]
    assert "serving on" in (tmp_path / "0.log").read_text()


def test_a_service_that_does_not_start(launch: Launch, tmp_path: Path) -> None:
    """Its name, exit code and the end of its log; the others are stopped."""
    services = launch("gaussian", "nobody", "gaussian")
    with pytest.raises(ServiceFailed, match="decoder 1 ended with code 3") as caught, running(services):
        pytest.fail("it runs")
    lines = str(caught.value).splitlines()
    assert str(tmp_path / "1.log") in lines[0]
    assert "model: got 'nobody'" in lines[-1]
    assert None not in [service.process.poll() for service in services]


def test_services_end_with_the_block(launch: Launch) -> None:
    """Whatever happens in it."""
    services = launch("gaussian")
    with pytest.raises(KeyError), running(services):
        raise KeyError
    assert services[0].process.poll() == 0


def test_stop_is_final(launch: Launch) -> None:
    """A service that is not ready yet is stopped as well, and stopping twice is harmless."""
    (service,) = launch("gaussian")
    service.stop()
    assert service.process.poll() is not None
    service.stop()
