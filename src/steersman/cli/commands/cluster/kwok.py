"""`steersman cluster kwok`: KWOK's controller for a cluster that steersman did not start."""

from __future__ import annotations

from typing import Annotated

from steersman.cli.options.cluster import KubeconfigOptions, Yes, run_with_client
from steersman.cli.options.common import CommandGroup
from steersman.cli.options.declaring import option, with_options
from steersman.cli.output.display import Progress, say
from steersman.core.errors import UsageError

app = CommandGroup(help="Simulate nodes in a cluster that exists: run KWOK's controller for it, or remove it.")


@app.command()
@with_options
def install(
    image: Annotated[
        str,
        option(
            "Run the controller in the cluster, as a Deployment of this image of KWOK 0.8, which must be in a "
            "registry that its nodes can reach. [default: a process of this machine, built as for 'cluster up']",
            metavar="IMAGE",
        ),
    ] = "",
    print_manifests: Annotated[
        bool, option("With --image: print the manifests, for kubectl apply; change nothing.", "--print")
    ] = False,
    yes: Yes = False,
    *,
    cluster: KubeconfigOptions,
) -> None:
    """Run KWOK's controller for a cluster that exists, so that 'cluster nodes add' can add simulated nodes to it.

    It keeps the nodes that steersman creates there ready, and lets pods on them run without containers; real nodes and
    their pods are left alone. Without --image it is a process of this machine, with a copy of the credentials, until
    'cluster kwok remove' or a reboot. With --image it is a Deployment in kube-system with its own role.

    **Example**: steersman cluster kwok install --kubeconfig ~/.kube/config --context test --yes

    **Then**: steersman cluster nodes add --context test --count 100 --yes
    """
    from steersman.apps.local_cluster import kwok as controller

    if print_manifests:
        if not image:
            raise UsageError("--print shows what --image would create; give that, too")
        import yaml

        print(yaml.safe_dump_all(controller.manifests(image), sort_keys=False), end="")
        return
    target = cluster.find()
    if target.is_local:
        raise UsageError("KWOK runs already in a cluster of 'steersman cluster up'; this is for other clusters")
    if image:
        target.require_consent(f"create a Deployment, a role and its binding named {controller.NAME}", yes=yes)
        created = run_with_client(target, lambda client: controller.install(client, image))
        say(f"KWOK is installed at {target.config.cluster.server}: {created} objects named {controller.NAME}")
        return
    target.require_consent("run a controller that changes simulated nodes and their pods", yes=yes)

    from steersman.apps.local_cluster.control_plane import build

    with Progress("building packages of the control plane", estimate=False) as progress:
        program = build.programs(progress.update, say) / "kwok"
    log = controller.start(target.config, program)
    say(f"KWOK's controller runs on this machine for {target.config.cluster.server}; its log is {log}")


@app.command()
@with_options
def remove(cluster: KubeconfigOptions, yes: Yes = False) -> None:
    """Stop the controller that 'cluster kwok install' runs on this machine, and delete what it created in the cluster.

    Simulated nodes stay, and are no longer ready after a minute; 'cluster nodes remove' deletes them.

    **Example**: steersman cluster kwok remove --context test --yes
    """
    from steersman.apps.local_cluster import kwok as controller

    target = cluster.find()
    if target.is_local:
        raise UsageError("KWOK is part of a cluster of 'steersman cluster up'; 'cluster down' stops that")
    target.require_consent(f"delete the Deployment, role and binding {controller.NAME} of steersman", yes=yes)
    stopped = controller.stop(target.config)
    deleted = run_with_client(target, controller.remove)
    if not (stopped or deleted):
        say(f"KWOK was not installed by steersman at {target.config.cluster.server}")
        return
    parts = ["the process was stopped"] if stopped else []
    parts += [f"{deleted} objects were deleted"] if deleted else []
    say(f"KWOK is removed from {target.config.cluster.server}: {', '.join(parts)}")
