"""The page that plays openb in the visitor's browser: its figures are those of simulations in Python."""

from __future__ import annotations

import gzip
import random
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, FilePayload, Page
from tests.browser.conftest import serious_violations
from tests.support.site import build_site

from steersman.core.errors import InputError
from steersman.policies.registry import resolve
from steersman.simulation.run import Simulator
from steersman.workloads.formats.openb import embedded, parse_nodes, parse_pods
from steersman.workloads.workload import Workload

pytestmark = pytest.mark.browser

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,96000,393216,8,A100\nn1,64000,262144,2,T4\nn2,32000,65536,0,\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np0,8000,32768,2,1000,A100\np1,0,0,1,300,\np2,4000,0,0,0,\n"
)


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def addresses(site: Path) -> Iterator[dict[str, str]]:
    """The page's address on a server of files, and from the disk."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=site)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        host = f"http://127.0.0.1:{server.server_port}"
        yield {"http": f"{host}/play.html", "file": (site / "play.html").as_uri()}
        server.shutdown()
        thread.join()


@contextmanager
def played(
    browser: Browser, address: str, width: int = 1280, dark: bool = False, moving: bool = False
) -> Iterator[Page]:
    """Open the page; messages, errors, and requests to other hosts fail the test."""
    context = browser.new_context(
        viewport={"width": width, "height": 1000},
        color_scheme="dark" if dark else "light",
        reduced_motion="no-preference" if moving else "reduce",
    )
    context.set_default_timeout(120_000)  # it computes two runs in some seconds, more on a busy machine
    page, problems, home = context.new_page(), list[str](), address.rpartition("/")[0]
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "request", lambda request: None if request.url.startswith((home, "blob:")) else problems.append(request.url)
    )
    page.goto(address)
    page.wait_for_function("document.getElementById('time').max > 0")
    yield page
    context.close()
    assert problems == []


def ends(page: Page) -> dict[str, float]:
    """Return the GPUs allocated that the page states at the end, in percent by policy."""
    page.wait_for_function("document.getElementById('result').textContent !== ''")
    found = re.findall(r"(\d+\.\d\d) % of GPUs allocated under ([\w-]+)", page.inner_text("#result"))
    return {policy: float(percent) for percent, policy in found}


def simulated(workload: Workload, policies: tuple[str, ...], seed: int) -> dict[str, float]:
    """Return the same of simulations."""
    simulator, result = Simulator(workload), dict[str, float]()
    for name in policies:
        run = simulator.run(resolve(name), protocol="inflation", seed=seed, ratio=1.3)
        result[name] = next(each.value for each in run.metrics if each.name == "gpu_allocation_percent")
    return result


@cache
def of_openb(policies: tuple[str, ...], seed: int) -> dict[str, float]:
    return simulated(embedded("default"), policies, seed)


def choose(page: Page, nodes: str | bytes, pods: str | bytes) -> None:
    """Choose tables of these texts or contents."""
    for name, text in (("nodes", nodes), ("pods", pods)):
        content = text.encode() if isinstance(text, str) else text
        payload: FilePayload = {"name": f"{name}.csv", "mimeType": "text/csv", "buffer": content}
        page.set_input_files(f"#{name}", payload)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("how", ["http", "file"])
def test_the_page_ends_with_the_figures_of_simulations(
    addresses: dict[str, str], browser: Browser, how: str, dark: bool
) -> None:
    with played(browser, addresses[how], dark=dark) as page:
        assert ends(page) == of_openb(("kube-default", "fgd"), 42)
        assert page.inner_text("#difference").startswith("+")
        # A choice before the first run is computed.
        page.reload()
        page.select_option("#second", "best-fit")
        page.wait_for_function("document.getElementById('result').textContent.includes('best-fit')")
        assert ends(page) == of_openb(("kube-default", "best-fit"), 42)


def test_every_policy_and_seed_has_the_figures_of_simulations(addresses: dict[str, str], browser: Browser) -> None:
    with played(browser, addresses["file"]) as page:
        pairs = [("greedy-forecast", "random", 7), ("best-fit", "gpu-clustering", 3), ("dot-product", "gpu-packing", 0)]
        pairs += [("least-allocated", "most-allocated", 11), ("balanced-allocation", "kube-default", 12)]
        for first, second, seed in pairs:
            page.select_option("#first", first)
            page.select_option("#second", second)
            page.fill("#seed", str(seed))
            page.press("#seed", "Tab")
            page.wait_for_function(f"shown.played.seed === {seed}")
            assert ends(page) == of_openb((first, second), seed)


def _tables(seed: int, nodes: int, pods: int, kinds: int, models: list[str], delimiter: str) -> tuple[str, str]:
    """Draw a list of nodes and one of pods, with so many kinds of pods."""
    draw = random.Random(seed)
    rows: list[tuple[object, ...]] = [("sn", "cpu_milli", "memory_mib", "gpu", "model")]
    for i in range(nodes):
        gpus = draw.choice([0, 1, 2, 4, 8, 8])
        rows.append(
            (f"node-{i}", draw.choice([32_000, 96_000]), draw.choice([65_536, 393_216]), gpus, draw.choice(models))
        )
    requests = []
    for _ in range(kinds):
        gpus = draw.choice([0, 1, 1, 1, 2, 4])
        milli = draw.choice([250, 500, 1000, draw.randint(1, 1000)]) if gpus == 1 else 1000 * bool(gpus)
        wanted = draw.choice(["", "", "|".join(models)]) if all(models) else ""
        requests.append((draw.randint(0, 20_000), draw.choice([0, 4096, 40_000]), gpus, milli, wanted))
    others: list[tuple[object, ...]] = [("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec")]
    others += [(f"pod-{i}", *draw.choice(requests)) for i in range(pods)]
    one, other = ("\n".join(delimiter.join(map(str, row)) for row in table) + "\n" for table in (rows, others))
    return one, other


OWN = {
    "models": _tables(9, 30, 40, 6, ["A100", "T4"], ","),
    "more kinds than a profile has": _tables(4, 60, 1500, 1200, ["A100", ""], ";"),
    "demand beyond the cluster": _tables(3, 5, 400, 30, ["T4"], "\t"),
    "quoted": (NODES.replace("n0", '"a ""node"", quoted"'), PODS.replace("p1", '"one, two"').replace("\n", "\r\n")),
}


@pytest.mark.parametrize("case", OWN)
def test_own_tables_have_the_figures_of_simulations(addresses: dict[str, str], browser: Browser, case: str) -> None:
    nodes, pods = OWN[case]
    with played(browser, addresses["http"]) as page:
        page.wait_for_load_state("networkidle")
        requests = list[str]()
        page.on("request", lambda request: requests.append(request.url))
        if case == "quoted":  # as gzip, and as PowerShell writes it
            choose(page, gzip.compress(nodes.encode()), pods.encode("utf-16"))
        else:
            choose(page, nodes, pods)
        page.wait_for_function("shown.played.name === 'pods.csv'")
        workload = Workload("own", parse_nodes("nodes.csv", nodes), parse_pods("pods.csv", pods))
        assert ends(page) == simulated(workload, ("kube-default", "fgd"), 42)
        assert requests == []
        assert page.evaluate("document.getElementById('maps').getBoundingClientRect().top") < 500
        # Its tables are those of openb.
        assert page.locator("#first option", has_text="greedy-forecast").count() == 0
        page.click("#openb")
        page.wait_for_function("shown.played.name === 'openb'")
        assert ends(page) == of_openb(("kube-default", "fgd"), 42)


BROKEN = [
    ("nodes", NODES.replace("64000", "64 cores")),
    ("nodes", NODES.replace("n1", "n0")),
    ("nodes", NODES.replace(",2,T4", ",63,T4")),
    ("nodes", NODES.splitlines()[0]),
    ("pods", PODS.replace("300", "1300")),
    ("pods", PODS.replace("2,1000", "2,0")),
    ("pods", PODS.replace("1,300", "0,300")),
    ("pods", PODS.replace("A100", "A100|")),
    ("pods", PODS.replace("p1,", ",")),
    ("pods", PODS.replace("p1,0", "p1,0,0")),
    ("pods", PODS.replace("p2,4000", "p2,99999999999999999999999")),
    ("pods", PODS.replace("gpu_spec", "cpu_milli")),
    ("pods", PODS.replace("p1", '"p, 1"').replace("p2,4000", "p2,-1")),
    ("pods", ""),
]
"""Tables about which the page says what Python says."""
OTHERWISE = [
    ("nodes", b"sn,cpu\xff", "nodes.csv: is not UTF-8 text"),
    ("pods", gzip.compress(PODS.encode())[:20], "pods.csv: cannot be decompressed"),
    (
        "nodes",
        NODES.replace("A100", "A\x07100"),
        'nodes.csv, line 2, model: "A\\u0007100" has a character that cannot be printed',
    ),
    (
        "pods",
        PODS.replace("p1", '"p\n1"'),
        'pods.csv, line 4, name: "p\\n1" has a character that cannot be printed',
    ),
    ("pods", PODS.replace("p1", '"p1'), "pods.csv, line 3: is not CSV: a quote is never closed"),
    ("pods", PODS.replace("p1", '"p1"x'), "pods.csv, line 3: is not CSV: ',' expected after '\"'"),
    (
        "pods",
        PODS.replace("gpu_milli", "milli"),
        "pods.csv, line 1, gpu_milli: column is missing; "
        "openb's list of pods needs name,cpu_milli,memory_mib,num_gpu,gpu_milli",
    ),
    (
        "nodes",
        "sn,cpu_milli,memory_mib,gpu,model\nn0,96000,393216,0,\n",
        "pods.csv: its nodes have no GPU; the page fills the GPUs of a cluster",
    ),
    (
        "pods",
        "\n".join(PODS.splitlines()[::3]),
        "pods.csv: its pods have no GPU; the page fills the GPUs of a cluster",
    ),
]


def _error(which: str, text: str) -> str:
    with pytest.raises(InputError) as raised:
        (parse_nodes if which == "nodes" else parse_pods)(f"{which}.csv", text)
    return str(raised.value)


def test_a_broken_table_is_one_line_with_its_place(addresses: dict[str, str], browser: Browser) -> None:
    with played(browser, addresses["file"]) as page:
        for which, text, line in [*((which, text, _error(which, text)) for which, text in BROKEN), *OTHERWISE]:
            choose(page, NODES, PODS)
            page.wait_for_selector("#wrong", state="hidden")
            choose(page, *((text, PODS) if which == "nodes" else (NODES, text)))
            page.wait_for_selector("#wrong:not([hidden])")
            assert page.inner_text("#wrong") == line
        # What was played before is still there.
        assert page.inner_text("#now").endswith("% of demand")
        assert len(ends(page)) == 2
        page.click("#openb")
        page.wait_for_selector("#wrong", state="hidden")
        assert ends(page) == of_openb(("kube-default", "fgd"), 42)


def _painted(page: Page, name: str) -> int:
    """Return the pixels of the first map that have the colour of a state of GPUs."""
    return int(
        page.evaluate(
            """name => {
              const map = document.querySelector('#maps canvas'), canvas = document.createElement('canvas');
              [canvas.width, canvas.height] = [map.width, map.height];
              const context = canvas.getContext('2d', { willReadFrequently: true });
              context.drawImage(map, 0, 0);
              context.fillStyle = colour(name);
              const parts = [1, 3, 5].map((at) => parseInt(context.fillStyle.slice(at, at + 2), 16));
              const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
              let count = 0;
              for (let i = 0; i < data.length; i += 4) count += parts.every((part, at) => data[i + at] === part);
              return count;
            }""",
            name,
        )
    )


def test_the_keyboard_plays_pauses_and_seeks(addresses: dict[str, str], browser: Browser) -> None:
    with played(browser, addresses["file"], moving=True) as page:
        page.wait_for_function("document.getElementById('time').value > 100")
        page.focus("#toggle")
        page.keyboard.press("Space")
        assert page.inner_text("#toggle") == "Play"
        at = int(page.input_value("#time"))
        page.focus("#time")
        page.keyboard.press("ArrowRight")
        assert int(page.input_value("#time")) == at + 1
        page.keyboard.press("Home")
        assert page.inner_text("#now") == "0 of 10,866 pods, 0 % of demand"
        assert (_painted(page, "full"), _painted(page, "shared")) == (0, 0)
        idle = _painted(page, "idle")
        page.keyboard.press("End")
        assert ends(page) == of_openb(("kube-default", "fgd"), 42)
        assert _painted(page, "full") > 10 * _painted(page, "idle")
        assert _painted(page, "idle") < idle / 5
        page.focus("#toggle")
        page.keyboard.press("Enter")
        page.wait_for_function("document.getElementById('time').value < 5000")
        assert page.inner_text("#toggle") == "Pause"


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_can_be_read(addresses: dict[str, str], browser: Browser, axe: str, width: int, dark: bool) -> None:
    with played(browser, addresses["file"], width=width, dark=dark) as page:
        ends(page)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        # Squares of GPUs cover the width of their map.
        assert page.evaluate("shown.maps.every((map) => Math.max(...map.x) > 0.9 * map.canvas.clientWidth)")
        assert serious_violations(page, axe) == []
        colours = page.evaluate("['node', 'idle', 'shared', 'full', 'first', 'second'].map(colour)")
        node, idle, shared, full, first, second = map(_luminance, colours)
        back = _luminance("#0b0c0f" if dark else "#ffffff")
        pairs = [(node, idle), (node, shared), (node, full), (shared, full), (back, first), (back, second)]
        assert all((max(pair) + 0.05) / (min(pair) + 0.05) >= 3 for pair in pairs), colours


def _luminance(colour: str) -> float:
    """Return the relative luminance of a colour (WCAG 2.2)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_index_shows_the_page_first(site: Path, browser: Browser, theme: str) -> None:
    page = browser.new_page()
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    page.goto((site / "index.html").as_uri())
    first = page.locator("article img:visible").first
    assert first.evaluate("image => image.closest('a').getAttribute('href')") == "play.html"
    assert f"play-{theme}.png" in str(first.get_attribute("src"))
    assert first.evaluate("image => image.naturalWidth") > 0
    page.close()
