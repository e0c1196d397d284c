"""What every test gets: fixed seeds, no network, few threads, and the real weights if it asks."""

from __future__ import annotations

import errno
import ipaddress
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent

# Before anything imports torch. Two xdist workers share the cores that one process would use.
THREADS = 1 if "PYTEST_XDIST_WORKER" in os.environ else 2
os.environ.setdefault("OMP_NUM_THREADS", str(THREADS))

# The same examples on every run; no deadline, since the machine may be busy.
hypothesis.settings.register_profile("project", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("project")

#: `make test` tries what is the same for every figure on one with a chart and one without; the
#: others, and what takes a minute alone, are for `make test-thorough`.
SAMPLE = ("[roofline]", "[branch]")
EVERY_FIGURE = (
    "test_axe.py::test_the_states_of_a_figure",
    "test_site.py::test_a_figures_own_page",
    "test_export_standalone.py::test_an_export_is_whole",
    "test_export_standalone.py::test_what_cannot_be_is_set_right_with_a_note",
    "test_export_still.py::test_an_svg_stands_by_itself",
    "test_export_bundle.py::test_joined_and_separate_modules_draw_the_same",
)
LONG = (
    "test_access.py::test_the_tab_key_walks_through_the_article",
    "test_engines.py::test_keys_move",
    "test_engines.py::test_language_and_theme",
    "test_engines.py::test_a_live_race",
    "test_engines.py::test_a_finger",
    "test_engines.py::test_webkits_console",
    "test_export_still.py::test_a_still_is_what_the_page_shows[race]",
    "test_generators.py::test_hugo",
    "test_generators.py::test_jupyter_book",
    "test_jupyter.py::",
    "test_print.py::test_the_work_sheet_is_two_pages[1-",
    "test_site.py::test_live_things_say_that_there_is_no_server[file]",
    "test_site.py::test_the_language_changes_and_the_state_stays[file]",
)


def _is_local(host: object) -> bool:
    if host in ("localhost", "", None, b""):
        return True
    try:
        return ipaddress.ip_address(str(host)).is_loopback or str(host) in ("0.0.0.0", "::")
    except ValueError:
        return False


class _Network:
    """Makes this process see what a machine without a network sees.

    An audit hook cannot be taken off again, hence a switch for the tests marked ``registry``.
    """

    open = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.open or event not in ("socket.connect", "socket.getaddrinfo"):
            return
        host = arguments[0] if event == "socket.getaddrinfo" else arguments[1]
        if event == "socket.connect":
            if not isinstance(host, tuple):  # a Unix socket's path
                return
            host = host[0]
        if not _is_local(host):
            raise OSError(errno.ENETUNREACH, f"tests have no network (asked for {host})")


NETWORK = _Network()


def pytest_configure(config: pytest.Config) -> None:
    sys.addaudithook(NETWORK)


def mark_what_is_long(items: list[pytest.Item]) -> None:
    """Mark what `make test` leaves out; a browser on a busy machine gets two more tries, and the
    summary says that it needed them."""
    for item in items:
        name = item.nodeid
        sample = name.endswith(SAMPLE) or not any(part in name for part in EVERY_FIGURE)
        if not sample or any(part in name for part in LONG):
            item.add_marker(pytest.mark.thorough)
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.flaky(reruns=2))


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    cuda: bool | None = None
    for item in items:
        if "browser" in item.path.relative_to(ROOT / "tests").parts[:-1]:
            item.add_marker("browser")
        # What shares something expensive runs in one worker: the loaded pair; a browser.
        if item.get_closest_marker("real_model"):
            item.add_marker(pytest.mark.xdist_group("real_model"))
        elif item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.xdist_group(f"browser {item.path.stem}"))
        if item.get_closest_marker("registry") and not os.environ.get("SD_REGISTRY"):
            item.add_marker(pytest.mark.skip(reason="asks the pip index; SD_REGISTRY=1 runs it"))
        if item.get_closest_marker("gpu"):
            if cuda is None:
                import torch

                cuda = torch.cuda.is_available()
            if not cuda:
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))
    mark_what_is_long(items)


@pytest.fixture(autouse=True)
def _same_start(request: pytest.FixtureRequest) -> Iterator[None]:
    """Seed every generator that a test may use without naming a seed; open the network if asked."""
    random.seed(0)
    np.random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)
    NETWORK.open = request.node.get_closest_marker("registry") is not None
    yield
    NETWORK.open = False


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def embedded_folder() -> Path:
    """The default model's weights, if they are on this machine; tests never fetch them.

    Skips without them; with SD_REQUIRE_WEIGHTS=1, which ``make test`` sets, it fails.
    """
    from kernels import hub, storage, weights, wheel

    own = storage.cache_root() / "weights" / wheel.SMOLLM2.folder_name
    if hub.cached(weights.DEFAULT_ID) is None and storage.manifest(own) is None:
        reason = f"no weights of {weights.DEFAULT_ID} here: run `python -m kernels weights` once"
        if os.environ.get("SD_REQUIRE_WEIGHTS") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return weights.resolve()


@pytest.fixture(scope="session")
def embedded_pair(embedded_folder: Path) -> Any:
    """The default pair, loaded once per process (kernels.pairs.Pair)."""
    from kernels.pairs import load_pair

    return load_pair("embedded")
