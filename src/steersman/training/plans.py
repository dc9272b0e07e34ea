"""Every kind of training by one door: evolution on whole runs of workloads, and learning in environments."""

from __future__ import annotations

from pathlib import Path

from steersman.training.evolve import Plan, evolve
from steersman.training.learn import LearningPlan, learn
from steersman.training.run import Limits, OnIteration, Standing

AnyPlan = Plan | LearningPlan


def train(
    plan: AnyPlan,
    folder: Path,
    limits: Limits,
    *,
    jobs: int = 1,
    resume: bool = False,
    on_iteration: OnIteration | None = None,
) -> Standing:
    """Train to the limits; the best policy by validation is `policy.safetensors` in `folder`.

    Args:
        plan: what is trained.
        folder: of the run.
        limits: when it ends.
        jobs: processes, of evolution on workloads; environments are stepped in one.
        resume: continue the run in `folder`.
        on_iteration: progress.

    Raises:
        SteersmanError: see `evolve` and `learn`.
    """
    if isinstance(plan, Plan):
        return evolve(plan, folder, limits, jobs=jobs, resume=resume, on_iteration=on_iteration)
    return learn(plan, folder, limits, resume=resume, on_iteration=on_iteration)


def gain(plan: AnyPlan, value: float) -> str:
    """What a validation says, in words."""
    if isinstance(plan, Plan):
        return plan.task.said(value, plan.config.reference)
    return f"{abs(value):.2f} % {'more' if value >= 0 else 'less'} than {plan.rule} earns"
