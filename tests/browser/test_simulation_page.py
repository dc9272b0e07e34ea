"""The dashboard's page in Chromium: what it draws and says is what the simulation did."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.conftest import opened, serious_violations

import steersman
from steersman.evaluation.report.style import styles
from steersman.live.dashboard.simulation.document import OUTCOMES, replay_of

pytestmark = pytest.mark.browser
WORKLOAD, POLICIES, SEED = "default-small", ("fgd", "steersman"), 7
HOSTILE = "<img-src=x-onerror=alert(1)>"
WIDTHS = {"desktop": 1400, "phone": 390}


@pytest.fixture(scope="module")
def small(serve: Callable[..., str]) -> str:
    return serve("--workload", WORKLOAD, "--policy", *POLICIES, "--seed", str(SEED))


@pytest.fixture(scope="module")
def replay() -> Any:
    workload = steersman.load_workload(WORKLOAD)
    return replay_of(workload, [steersman.simulate(workload, each, seed=SEED, record=True) for each in POLICIES])


def seek(page: Page, event: int) -> None:
    move = (
        "event => { const t = document.getElementById('time'); t.value = event; t.dispatchEvent(new Event('input')); }"
    )
    page.evaluate(move, event)


def test_page_title_names_workload_and_policies(browser: Browser, small: str, replay: Any) -> None:
    with opened(browser, small) as page:
        expect(page.locator("#subject")).to_contain_text(f"64 nodes, {len(replay.runs[0].time)} arrivals")
        expect(page.locator(".run h2")).to_have_text(POLICIES)
        for run, columns in enumerate(replay.runs):
            expect(page.locator(".run p").nth(run)).to_contain_text(f"GPU {columns.gpu[-1]:.1f} %")
        assert "token" not in page.url


@pytest.mark.parametrize("dark", [False, True])
def test_runs_have_the_colours_of_their_policies(browser: Browser, small: str, dark: bool) -> None:
    script = """([one, other]) => document.querySelectorAll(".run h2 i").length === 2
        && [one, other].every((colour, i) => {
            const sample = document.createElement("i");
            sample.style.color = colour;
            return document.querySelectorAll(".run h2 i")[i].style.borderTopColor === sample.style.color;
        })"""
    found = styles(POLICIES).values()
    with opened(browser, small, dark=dark) as page:
        page.wait_for_function(script, arg=[each.dark if dark else each.colour for each in found])
        page.locator("#theme").click()
        page.wait_for_function(script, arg=[each.colour if dark else each.dark for each in found])


def test_state_matches_the_simulation_forwards_and_backwards(browser: Browser, small: str, replay: Any) -> None:
    """Allocation and fragmentation that the page computes from events against those of the simulator's kernels."""
    last = len(replay.runs[0].time)
    events = [*np.random.default_rng(1).integers(1, last, 40).tolist(), 1, last]
    script = """async events => {
        const { ClusterState } = await import('/static/simulation/replay.js');
        const replay = await (await fetch('/api/simulation/replay')).json();
        return replay.runs.map(run => {
            const state = new ClusterState(replay, run);
            const all = 1000 * state.gpu.length;
            return events.map(event => {
                state.seek(event);
                let lost = 0;
                replay.nodes.gpus.forEach((count, n) => {
                    for (let d = 0; d < count; d += 1) lost += state.fragmented(n, d);
                });
                return [100 * state.gpu.reduce((sum, each) => sum + each, 0) / all, 100 * lost / all];
            });
        });
    }"""
    with opened(browser, small) as page:
        found = page.evaluate(script, events)
    for columns, states in zip(replay.runs, found, strict=True):
        for event, (gpu, lost) in zip(events, states, strict=True):
            assert gpu == pytest.approx(columns.gpu[event - 1], abs=0.006)
            assert lost == pytest.approx(columns.fragmentation[event - 1], abs=0.002)


def test_slider_ends_where_both_runs_end(browser: Browser, serve: Callable[..., str]) -> None:
    workload = steersman.load_workload(WORKLOAD)
    results = {
        name: steersman.simulate(workload, name, protocol="timed", load=1.2, seed=SEED, record=True)
        for name in ("fgd", "random")
    }
    ends = {name: replay_of(workload, [result]).runs[0] for name, result in results.items()}
    names = sorted(ends, key=lambda name: ends[name].time[-1])
    assert ends[names[0]].time[-1] < ends[names[1]].time[-1], "the second run is the longer one"
    options = ("--protocol", "timed", "--load", "1.2", "--seed", str(SEED))
    with opened(browser, serve("--workload", WORKLOAD, "--policy", *names, *options)) as page:
        for run in range(2):
            expect(page.locator(".run p").nth(run)).to_contain_text("GPU 0.0 %, CPU 0.0 %, ")


@pytest.fixture(scope="module")
def crowded(serve: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Runs in which many pods arrive and leave at the same times, and some wait."""
    folder = tmp_path_factory.mktemp("crowded")
    (folder / "nodes.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\n" + "n0,8000,262144,2,A10\nn1,9000,262144,2,A10\n"
    )
    header = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
    )
    rows = [
        f"p{i},{1000 + i % 3 * 500},1024,1,{(700, 300, 500)[i % 3]},,LS,Running,{i // 8 * 20},{i // 8 * 20 + 40},0"
        for i in range(48)
    ]
    (folder / "pods.csv").write_text("\n".join([header, *rows, ""]))
    files = ("--nodes", str(folder / "nodes.csv"), "--pods", str(folder / "pods.csv"))
    return serve(*files, "--protocol", "timed", "--policy", "fgd", "most-even")


def test_both_runs_show_the_same_arrivals_at_simultaneous_events(browser: Browser, crowded: str) -> None:
    script = """async () => {
        const { arrivalCounts, eventsUntil, WAITING } = await import('/static/simulation/replay.js');
        const { runs } = await (await fetch('/api/simulation/replay')).json();
        const [lead, other] = runs.map(arrivalCounts);
        const wrong = [];
        for (let at = 1; at <= lead.length; at += 1) {
            const until = eventsUntil(runs[1], other, runs[0].time[at - 1], lead[at - 1]);
            if ((until ? other[until - 1] : 0) !== lead[at - 1]) wrong.push(at);
        }
        return [wrong, lead.at(-1), other.at(-1), runs.every(run => run.outcome.includes(WAITING))];
    }"""
    with opened(browser, crowded) as page:
        assert page.evaluate(script) == [[], 48, 48, True]
        seek(page, 1)
        shown = [page.locator(".run p").nth(run).inner_text() for run in range(2)]
        assert [re.sub(" on n[01]$", "", text) for text in shown] == [re.sub(" on n[01]$", "", shown[0])] * 2


def test_a_difference_shows_both_clusters_before_the_decision(browser: Browser, crowded: str) -> None:
    script = """async index => {
        const { differences } = await import('/static/simulation/replay.js');
        const { runs, pods } = await (await fetch('/api/simulation/replay')).json();
        const { a, b } = differences(runs[0], runs[1])[index];
        return [[0, a], [1, b]].map(([run, e]) => (e === 0 ? 'nothing' : pods.name[runs[run].pod[e - 1]]));
    }"""
    with opened(browser, crowded) as page:
        for index in range(4):
            page.click("#next" if index else "#time")
            if index == 0:
                seek(page, 0)
                page.click("#next")
            for run, name in enumerate(page.evaluate(script, index)):
                expect(page.locator(".run p").nth(run)).to_contain_text(name)


def test_node_card_follows_the_slider_and_playback_speed(browser: Browser, crowded: str) -> None:
    with opened(browser, crowded) as page:
        page.fill("#search", "n0")
        page.keyboard.press("Enter")
        page.locator("h1").click()
        page.keyboard.press("Home")
        expect(page.locator("#details article").first).to_contain_text("0.0 of 8.0 CPU")
        seek(page, 8)
        expect(page.locator("#details article").first).not_to_contain_text("0.0 of 8.0 CPU")
        page.select_option("#duration", "10")
        page.click("#play")
        page.wait_for_timeout(1000)
        page.select_option("#duration", "120")
        before = int(page.locator("#time").input_value())
        page.wait_for_timeout(500)
        assert int(page.locator("#time").input_value()) >= before
        page.click("#play")
        expect(page.locator("#play")).to_have_attribute("aria-pressed", "false")


def test_differences_are_those_of_the_runs_with_both_explanations(browser: Browser, small: str, replay: Any) -> None:
    one, other = replay.runs
    differ = [e for e in range(len(one.time)) if one.node[e] != other.node[e]]
    with opened(browser, small) as page:
        expect(page.locator("#difference")).to_have_text(
            f"{len(differ)} decisions differ; the first is event {differ[0]}"
        )
        page.click("#next")
        page.keyboard.press("n")
        expect(page.locator("#difference")).to_contain_text(f"2 of {len(differ)}")
        expect(page.locator("#now")).to_contain_text(f"event {differ[1]} of")
        expect(page.locator("#details [role=status]")).to_have_count(0, timeout=180_000)
        cards = page.locator("#details article")
        expect(cards).to_have_count(2)
        for run, columns in enumerate(replay.runs):
            node = columns.node[differ[1]]
            expect(cards.nth(run)).to_contain_text(replay.nodes.name[node] if node >= 0 else "placed nowhere")
            expect(cards.nth(run)).to_contain_text("prefers")
        page.keyboard.press("p")
        expect(page.locator("#difference")).to_contain_text(f"1 of {len(differ)}")
        expect(page.locator("#previous")).to_be_disabled()


def test_next_difference_comes_after_the_slider_position(browser: Browser, small: str, replay: Any) -> None:
    one, other = replay.runs
    differ = [e for e in range(len(one.time)) if one.node[e] != other.node[e]]
    middle = differ[len(differ) // 2]
    with opened(browser, small) as page:
        page.locator("#time").fill(str(middle))
        page.click("#next")
        expect(page.locator("#difference")).to_contain_text(f"{len(differ) // 2 + 1} of {len(differ)}")
        expect(page.locator("#now")).to_contain_text(f"event {middle} of")
        page.locator("#time").fill(str(middle))
        page.click("#previous")
        expect(page.locator("#difference")).to_contain_text(f"{len(differ) // 2} of {len(differ)}")
        page.locator("#time").fill(str(differ[-1] + 1))
        expect(page.locator("#difference")).to_contain_text("the first is event")


PLACES = """[...document.querySelectorAll('.run canvas')].map((each) => each.getBoundingClientRect().toJSON())"""


@pytest.mark.parametrize("width", [1200, 1400, 1920])
def test_the_maps_stay_beside_each_other_while_reasons_are_open(browser: Browser, small: str, width: int) -> None:
    with opened(browser, small, width=width) as page:
        page.click("#next")
        expect(page.locator("#details article")).to_have_count(2)
        one, other = page.evaluate(PLACES)
        assert one["right"] <= other["left"]
        assert one["top"] == other["top"]
        reasons = page.locator("#details").bounding_box()
        assert reasons is not None
        assert other["right"] <= reasons["x"], "the reasons are to the right of both"
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        expect(page.locator("#details [role=status]")).to_have_count(0, timeout=60_000)


def numbers(columns: Any, gpus: int, applied: int) -> tuple[float, int]:
    """GPUs that are allocated after so many events, and pods that were refused, from the recording."""
    allocated = columns.gpu[applied - 1] * gpus / 100 if applied else 0.0
    return allocated, columns.outcome[:applied].count(OUTCOMES.index("failed"))


def words(first: float, second: float, refused: int) -> str:
    more = round(second - first, 1)
    gpus = "as many GPUs" if more == 0 else f"{'+' if more > 0 else '−'}{abs(more):g} GPU{'s' * (abs(more) != 1)}"
    size = abs(refused)
    pods = f"{size} {'more' if refused > 0 else 'fewer'} pod{'s' * (size != 1)}" if refused else "as many pods"
    return f"{gpus} allocated, {pods} refused"


def test_current_difference_is_shown_in_gpus_and_refused_pods(browser: Browser, small: str, replay: Any) -> None:
    one, other = replay.runs
    gpus, last = sum(replay.nodes.gpus), len(one.time)
    said = set()
    with opened(browser, small) as page:
        for event in (0, 1, last // 2, 2 * last // 3, 3 * last // 4, 4 * last // 5, last):
            (first, refused), (second, also) = (numbers(run, gpus, event) for run in (one, other))
            if abs(1000 * abs(second - first) % 100 - 50) < 5:  # percentages of a recording are rounded, too
                continue
            seek(page, event)
            expect(page.locator("#gap")).to_have_text(
                f"{POLICIES[1]} against {POLICIES[0]} at this moment: {words(first, second, also - refused)}"
            )
            said.add(page.locator("#gap strong").inner_text())
            if refused:
                expect(page.locator(".run p").first).to_contain_text(f"{refused} pods refused")
    assert any(re.search(r"[+−][\d.]+ GPU", each) for each in said)
    assert any("more pod" in each or "fewer pod" in each for each in said)


def test_waiting_pods_are_compared_in_the_timed_protocol(browser: Browser, crowded: str) -> None:
    script = """async () => {
        const { unplacedCounts } = await import('/static/simulation/replay.js');
        const { runs } = await (await fetch('/api/simulation/replay')).json();
        return runs.map(run => [[...unplacedCounts(run).waiting], run.outcome]);
    }"""
    with opened(browser, crowded) as page:
        for counts, outcomes in page.evaluate(script):
            assert counts[0] == counts[-1] == 0, "all pods of this workload run in the end"
            assert max(counts) > 1
            assert min(counts) == 0
            assert len(counts) == len(outcomes) + 1
        expect(page.locator("#gap strong")).to_have_text("as many GPUs allocated, as many pods refused")
        seek(page, 20)
        expect(page.locator("#gap strong")).to_contain_text("waiting")


def test_playback_reaches_the_end_and_keys_step(browser: Browser, small: str, replay: Any) -> None:
    last = len(replay.runs[0].time)
    with opened(browser, small) as page:
        page.select_option("#duration", "10")
        seek(page, last - last // 10)
        page.keyboard.press(" ")
        expect(page.locator("#play")).to_have_attribute("aria-pressed", "true")
        expect(page.locator("#play")).to_have_attribute("aria-pressed", "false", timeout=20_000)
        expect(page.locator("#now")).to_have_text(f"event {last} of {last}")
        for key, event in (("ArrowLeft", last - 1), ("Home", 0), ("ArrowRight", 1), ("End", last)):
            page.keyboard.press(key)
            expect(page.locator("#now")).to_have_text(f"event {event} of {last}")


def test_node_and_its_pods_open_by_click_and_key(browser: Browser, small: str, replay: Any) -> None:
    with opened(browser, small) as page:
        page.fill("#search", replay.nodes.name[3])
        page.keyboard.press("Enter")
        expect(page.locator("#details article")).to_have_count(2)
        expect(page.locator("#details h2").first).to_have_text(f"{replay.nodes.name[3]} under {POLICIES[0]}")
        page.locator(".run canvas").first.focus()
        before = page.locator("#details h2").first.inner_text()
        page.keyboard.press("ArrowRight")
        expect(page.locator("#details h2").first).not_to_have_text(before)
        page.locator("#details .link").first.click()
        expect(page.locator("#details article")).to_contain_text("prefers", timeout=60_000)


def test_counted_gpus_are_shown_as_used(browser: Browser, serve: Callable[..., str], tmp_path: Path) -> None:
    """A node that shares its GPUs by time offers more than have an index."""
    file = tmp_path / "cluster.json"
    allocatable = {"cpu": "64", "memory": "32Gi", "pods": "99", "nvidia.com/gpu": "80"}
    metadata = {"name": "ts", "labels": {"nvidia.com/gpu.product": "A100"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": allocatable}}
    requests = {"cpu": "1", "nvidia.com/gpu": "4"}
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{i}"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": requests, "limits": requests}}]},
        }
        for i in range(10)
    ]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node, *pods]}))
    address = serve("--nodes", str(file), "--pods", str(file), "--policy", "kube-default", "--protocol", "arrivals")
    with opened(browser, address) as page:
        expect(page.locator(".run p")).to_contain_text("GPU 50.0 %")
        page.fill("#search", "ts")
        page.keyboard.press("Enter")
        expect(page.locator("#details article")).to_contain_text("80 A100 GPUs; 10 pods")
        expect(page.locator("#details td").nth(2)).to_have_text("4 GPUs")
        page.locator(".run canvas").first.hover(position={"x": 3, "y": 23})
        expect(page.locator(".run canvas").first).to_have_attribute("title", re.compile("40.00 of 80 A100 GPUs"))
        seek(page, 5)
        page.locator(".run canvas").first.hover(position={"x": 4, "y": 24})
        expect(page.locator(".run canvas").first).to_have_attribute("title", re.compile("20.00 of 80 A100 GPUs"))


def test_surplus_models_share_a_colour(browser: Browser, small: str) -> None:
    script = """async count => {
        const { showLegend } = await import('/static/shared/legend.js');
        const place = document.createElement('div');
        showLegend(place, 'model', [...Array(count).keys()].map(i => `M${i}`));
        return [...place.children].map(each =>
            [each.textContent, each.firstChild.getContext('2d').getImageData(0, 0, 1, 1).data.join()]);
    }"""
    with opened(browser, small) as page:
        for count, last in ((8, "M7"), (9, "2 other models"), (20, "13 other models")):
            entries = page.evaluate(script, count)
            assert [entries[0][0], entries[-2][0], entries[-1][0]] == ["M0", last, "no GPU model"]
            assert len({colour for _, colour in entries}) == len(entries) == 9


def test_non_finite_score_is_shown_as_a_dash(browser: Browser, small: str) -> None:
    script = """async () => {
        const { explanationParts } = await import('/static/shared/explanation.js');
        const feature = {name: 'x', value: null, other: 1, points: null};
        const parts = explanationParts({
            member: '', node: 'n1', points: null, equal: 0, decidedBy: 'p', comparedWith: 'n2',
            runnersUp: [{node: 'n2', points: null}], features: [feature], refused: {}});
        return parts.map(each => each.textContent).join(' ');
    }"""
    with opened(browser, small) as page:
        said = page.evaluate(script)
        assert "n1 (– points" in said
        assert "null" not in said


@pytest.mark.parametrize("mode", ["used", "shared", "fragmented", "model"])
def test_every_colouring_draws_and_has_a_legend(browser: Browser, small: str, mode: str) -> None:
    with opened(browser, small) as page:
        page.select_option("#mode", mode)
        assert page.locator("#legend span canvas").count() >= 3
        colours = page.evaluate(
            """() => { const c = document.querySelector('.run canvas');
            const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, seen = new Set();
            for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255) seen.add(data.slice(i, i + 3).join());
            return seen.size; }"""
        )
        assert colours > 3


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True])
def test_page_passes_accessibility_checks(browser: Browser, small: str, axe: str, width: str, dark: bool) -> None:
    with opened(browser, small, width=WIDTHS[width], dark=dark) as page:
        for step in (lambda: None, lambda: page.click("#next")):
            step()
            assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]
            assert serious_violations(page, axe) == []
        expect(page.locator("#details [role=status]")).to_have_count(0, timeout=60_000)


def test_cluster_names_are_escaped(browser: Browser, serve: Callable[..., str], tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\nn1,8000,32768,0,\n")
    rows = [f"{HOSTILE}{i},3000,1024,0,0,,LS,Pending,{i},9,{i}" for i in range(3)]
    header = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
    )
    pods.write_text("\n".join([header, *rows]) + "\n")
    address = serve("--nodes", str(nodes), "--pods", str(pods), "--policy", "kube-default", "--protocol", "arrivals")
    with opened(browser, address) as page:
        expect(page.locator(".run p")).to_contain_text(f"{HOSTILE}2 fits nowhere")
        page.fill("#search", "n1")
        page.keyboard.press("Enter")
        expect(page.locator("#details .link").first).to_have_text(f"{HOSTILE}0")
        page.locator("#details .link").first.click()
        expect(page.locator("#details h2")).to_contain_text(HOSTILE)
        assert page.locator("img").count() == 0


def test_page_needs_the_token_and_ends_with_its_server(browser: Browser, small: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    answer = page.goto(re.sub(r"\?.*", "", small))
    assert answer is not None
    assert answer.status == 401
    context.close()


def test_page_and_scripts_load_from_no_other_host() -> None:
    folder = Path(steersman.__file__).parent / "live" / "dashboard" / "static"
    ours = [file for file in folder.glob("*/*") if file.parent.name != "uplot"]  # its comments name sources
    assert ours
    for file in ours:
        assert not re.search(r"https?://", file.read_text()), file.name
