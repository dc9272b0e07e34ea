"""`steersman tune`: a study is kept, goes on, and knows its best trial."""

import importlib.util
import json
import multiprocessing
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.errors import raises
from tests.support.kubeconfig import UNREACHABLE
from tests.support.nightly import by_default

import steersman
from steersman.cli.main import main
from steersman.core.errors import InputError, UsageError
from steersman.core.redaction import redact_url
from steersman.envs.deployments import DeploymentsOptions
from steersman.training.tuning.storage import StudyStorage
from steersman.workloads.formats.kubernetes.objects import write_nodes, write_pods
from steersman.workloads.formats.openb import embedded

optuna = pytest.importorskip("optuna")


@pytest.fixture
def files(tmp_path, monkeypatch):
    whole = embedded("default")
    write_nodes(whole.nodes[::60], tmp_path / "nodes.yaml")
    write_pods(whole.pods[::60], tmp_path / "pods.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tune(trials, jobs="1"):
    size = ("--iterations", "2", "--validate-every", "1", "--trials", str(trials), "--jobs", jobs)
    return main(["tune", "--nodes", "nodes.yaml", "--workload", "pods.yaml", "--output", "study", *size])


def values(folder):
    study = optuna.load_study(study_name="steersman", storage=f"sqlite:///{folder / 'study' / 'study.db'}")
    return [trial.value for trial in study.trials]


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_study_is_stored_and_resumes(files, capsys):
    assert tune(2) == 0
    first = values(files)
    assert len(first) == 2
    assert tune(1) == 0
    assert values(files)[:2] == first
    assert len(values(files)) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert f"{max(value for value in values(files) if value is not None):.2f} % saved" in said
    best = json.loads((files / "study" / "best.json").read_text())
    assert 0.01 <= best["step"] <= 0.3
    assert "<script>" in (files / "study" / "tuning.html").read_text()
    assert (files / "study" / "trial-002" / "policy.safetensors").exists()


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_given_options_are_fixed_and_the_best_trial_can_be_trained(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    cluster = ("--node-count", "3", "--node-cpu", "16", "--validation-episodes", "1")
    scene = ("--protocol", "deployments", "--objective", "locality", *cluster)
    size = ("--iterations", "1", "--validate-every", "1")
    given = ("--algorithm", "dqn", "--learning-rate", "0.005", "--hidden", "8")
    assert main(["tune", *scene, *size, *given, "--trials", "1", "--jobs", "1", "--output", "study"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "than best-fit earns" in said
    assert "epsilon_decay" in said
    assert "learning_rate" not in said
    best = json.loads((tmp_path / "study" / "best.json").read_text())
    assert (best["algorithm"], best["network"], best["hidden"], best["learning_rate"]) == (
        "dqn",
        "mlp",
        "8",
        0.005,
    )
    assert (best["protocol"], best["objective"]) == ("deployments", "locality")
    assert main(["train", *cluster, *size, "--options", "study/best.json", "--output", "run"]) == 0
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["config"]["epsilon_decay"] == best["epsilon_decay"]
    assert (run["scene"]["protocol"], run["scene"]["objective"]) == ("deployments", "locality")
    (tmp_path / "kubeconfig").write_text(UNREACHABLE)
    live = ("--learn", "live", "--kubeconfig", "kubeconfig", "--explore-anyway")
    assert main(["schedule", *live, "--options", "study/best.json"]) == 1
    assert "cannot be reached" in capsys.readouterr().err, "the options are understood"


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_python_api_fixes_given_options_and_returns_trainable_ones(tmp_path):
    pytest.importorskip("torch")
    task, short = DeploymentsOptions(nodes=3), {"algorithm": "dqn", "iterations": 1, "validation_episodes": 1}
    given = {"learning_rate": 0.005}
    found = steersman.tune(task, tmp_path / "study", trials=1, validate_every=1, settings=given, **short)
    assert (found.finished, found.best_trial) == (1, 0)
    assert not found.best_options.keys() & {"learning_rate", "validation_episodes"}
    arguments = found.train_arguments
    assert arguments["settings"].keys() == found.best_options.keys() - {"hidden"}
    trained = steersman.train(task, tmp_path / "run", **short, **arguments)
    assert trained.plan.network.hidden == arguments["hidden"]
    assert trained.plan.config.batch_size == arguments["settings"]["batch_size"]
    with_widths = steersman.tune(task, tmp_path / "other", trials=1, validate_every=1, hidden=(8,), **short)
    assert "hidden" not in with_widths.train_arguments


def test_study_with_invalid_options_fails_at_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scene = ("--protocol", "deployments", "--objective", "allocation")
    assert main(["tune", *scene, "--algorithm", "ppo", "--trials", "3", "--jobs", "1", "--output", "study"]) == 2
    assert "its nodes have no GPU" in capsys.readouterr().err
    assert not (tmp_path / "study").exists()


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_study_has_trials_of_one_algorithm(tmp_path):
    pytest.importorskip("torch")
    task, options = DeploymentsOptions(nodes=3), {"trials": 1, "iterations": 2, "validate_every": 1}
    steersman.tune(task, tmp_path, algorithm="dqn", **options)
    with pytest.raises(UsageError, match=r"study\.db: the study is of dqn; name another folder for ppo"):
        steersman.tune(task, tmp_path, algorithm="ppo", **options)


OTHER_STUDIES = {
    "task.objective was 'allocation', now 'fragmentation'": ("--objective", "fragmentation"),
    "task.protocol was 'inflation', now 'arrivals'": ("--protocol", "arrivals"),
    "config.step was searched, now 0.05": ("--step", "0.05"),
    "config.network was 'linear', now 'mlp'": ("--network", "mlp"),
    "training was ['pods: ": ("--workload", "default-small"),
}


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.usefixtures("files")
def test_a_study_has_trials_that_can_be_compared(capsys):
    size = ("--iterations", "1", "--validate-every", "1", "--trials", "1", "--jobs", "1", "--output", "study")
    given = ("tune", "--nodes", "nodes.yaml", "--workload", "pods.yaml", *size)
    assert main([*given, "--seed", "2"]) == 0
    before = json.loads(Path("study/best.json").read_text())
    capsys.readouterr()
    for said, option in OTHER_STUDIES.items():
        replaced = [each for each in given if each not in ("--nodes", "nodes.yaml", "--workload", "pods.yaml")]
        assert main([*(replaced if "--workload" in option else given), *option]) == 2
        error = capsys.readouterr().err
        assert f"study/study.db: {said}" in error
        assert error.strip().endswith("a study of other trials; name another folder")
    assert json.loads(Path("study/best.json").read_text()) == before


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.usefixtures("files")
def test_a_study_ends_when_its_minutes_are_over(capsys):
    """A run of so many iterations would take an hour; the trials under way end with what they have."""
    options = ("--nodes", "nodes.yaml", "--workload", "pods.yaml", "--protocol", "arrivals", "--objective", "balance")
    size = ("--iterations", "100000", "--validate-every", "1000", "--jobs", "1", "--minutes", "0.1")
    began = time.monotonic()
    assert main(["tune", *options, *size, "--output", "study"]) == 0
    assert time.monotonic() - began < 120
    assert "Best of" in capsys.readouterr().out
    assert main(["tune", *options, "--minutes", "0", "--output", "study"]) == 2
    assert "--minutes must be above 0, not 0" in capsys.readouterr().err


SERVE = "from optuna.storages import *; run_grpc_proxy_server(RDBStorage('sqlite:///proxied.db'), port={})"


@pytest.fixture
def proxy(files):
    """Optuna's proxy in front of a database."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, "-W", "ignore", "-c", SERVE.format(port)]
    with subprocess.Popen(command, cwd=files) as server:
        yield f"grpc://127.0.0.1:{port}"
        server.kill()


STORAGES = ("journal:///shared.log", "sqlite:///shared.db", "grpc")


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("storage", by_default(STORAGES[:1], STORAGES))
def test_several_commands_add_trials_to_one_storage(storage, files, request):
    url = request.getfixturevalue("proxy") if storage == "grpc" else storage
    size = ("--iterations", "2", "--validate-every", "1", "--trials", "2", "--jobs", "1", "--storage", url)
    command = [sys.executable, "-m", "steersman", "tune", "--nodes", "nodes.yaml", "--workload", "pods.yaml", *size]
    with ExitStack() as stack:
        running = [
            stack.enter_context(subprocess.Popen([*command, "--output", each], stderr=subprocess.PIPE, text=True))
            for each in ("one", "two")
        ]
        for each in running:
            said = each.communicate(timeout=300)[1]
            assert each.returncode == 0, said
            assert "Traceback" not in said
    trials = sorted(path.name for path in files.glob("*/trial-*"))
    assert trials == [f"trial-{number:03d}" for number in range(4)]
    assert all(len(list((files / each).glob("trial-*"))) == 2 for each in ("one", "two"))
    study = StudyStorage(files, url).open()
    assert len({json.dumps(trial.params) for trial in study.trials}) == 4, "the commands draw different ones"


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_study_has_as_many_trials_as_were_asked_for(files):
    """Each of several processes would start one more if it counted trials and then began one."""
    assert tune(1, jobs="3") == 0
    assert len(values(files)) == 1


TUNE = ("tune", "--nodes", "nodes.yaml", "--workload", "pods.yaml", "--iterations", "2", "--validate-every", "1")


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_study_continues_by_its_folder_alone_to_the_same_trials(files, number):
    words = [*TUNE, "--trials", "3", "--jobs", "1", "--output"]
    command = [sys.executable, "-m", "steersman", *words, "a study"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        while not (files / "a study" / "trial-001").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        said = process.communicate(timeout=300)[1]
    if number == signal.SIGINT:
        assert said.splitlines()[-1] == "interrupted; to continue: steersman tune --output 'a study' --resume"
    assert main(["tune", "--output", "a study", "--resume"]) == 0
    assert main([*words, "whole"]) == 0
    trials = [
        [
            (trial.params, trial.value)
            for trial in StudyStorage(files / each).open().trials
            if trial.state.name in ("COMPLETE", "PRUNED")
        ]
        for each in ("a study", "whole")
    ]
    assert len(trials[0]) == 3
    assert trials[0] == trials[1]


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_resumed_study_has_as_many_trials_as_its_last_command_asked_for(files, capsys):
    assert tune(1) == 0
    assert tune(1) == 0
    for more, trials in (((), 2), (("--trials", "3"), 3), (("--seed", "1"), 3)):
        assert main(["tune", "--output", "study", "--resume", *more]) == 0
        assert len(values(files)) == trials
    assert main(["tune", "--output", "study", "--resume", "--step", "0.07"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: --step is not that of the run in study; ")
    assert main(["train", "--output", "study", "--resume"]) == 1
    assert "command.json: is of steersman tune; name a folder of train" in capsys.readouterr().err
    assert main([*TUNE, "--output", "new", "--resume"]) == 2
    assert "--resume: there is no study in new to continue" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["shared.log", "journal:///", "journal://folder/shared.log", "grpc:///file"])
def test_storage_that_is_no_url_is_refused(url, tmp_path):
    with raises(UsageError, url, "journal:///FILE"):
        steersman.tune(DeploymentsOptions(nodes=3), tmp_path / "study", algorithm="dqn", storage=url)


def open_together(barrier, failed):
    barrier.wait()
    try:
        StudyStorage(Path(), "sqlite:///shared.db").open()
    except Exception as error:
        failed.put(str(error))
        raise


def test_commands_that_start_together_make_one_study(tmp_path, monkeypatch):
    """Optuna looks whether tables are there, and then makes them, so that all but the first could fail."""
    monkeypatch.chdir(tmp_path)
    spawn = multiprocessing.get_context("spawn")
    failed = spawn.Queue()
    for _ in range(2):
        (tmp_path / "shared.db").unlink(missing_ok=True)
        barrier = spawn.Barrier(4)
        processes = [spawn.Process(target=open_together, args=(barrier, failed)) for _ in range(4)]
        for each in processes:
            each.start()
        for each in processes:
            each.join()
        assert [each.exitcode for each in processes] == [0] * 4, failed.get(timeout=10)


def test_a_file_that_is_no_journal_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for content in ("hello\n", "hello", "1\n", '{"a": 1}\n'):
        Path("notes.txt").write_text(content)
        with raises(InputError, "journal:///notes.txt", "is not a journal of Optuna; name another file"):
            StudyStorage(tmp_path, "journal:///notes.txt").open()
        assert Path("notes.txt").read_text() == content


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("mysql+nodriver://host/name", "expected journal:///FILE"),
        ("postgresql+psycopg://host/name", "install SQLAlchemy's driver of this database"),
    ],
)
def test_storage_without_its_driver_says_what_to_install(url, advice, tmp_path):
    if "psycopg" in url and importlib.util.find_spec("psycopg"):
        pytest.skip("the driver is installed")
    with raises(InputError, url, advice):
        steersman.tune(DeploymentsOptions(nodes=3), tmp_path / "study", algorithm="dqn", storage=url)


@pytest.mark.parametrize("scheme", ["journal", "sqlite", "nodatabase"])
def test_storage_that_cannot_be_used_fails_in_one_line(scheme, tmp_path):
    url = "nodatabase://user@host/name" if scheme == "nodatabase" else f"{scheme}:////missing/shared"
    with raises(InputError, redact_url(url)):
        steersman.tune(DeploymentsOptions(nodes=3), tmp_path / "study", algorithm="dqn", storage=url)
