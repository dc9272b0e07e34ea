"""Options of commands whose policy may be a URL: how its server is asked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from steersman.apps.http_policy.access import CA_FILE, HEADER_FILE, read_authority, read_headers
from steersman.cli.options.common import path
from steersman.cli.options.declaring import option

_option = partial(option, parser=path, metavar="FILE", rich_help_panel="Policies of a URL")


@dataclass(frozen=True, slots=True)
class PolicyServer:
    """How the server of a policy is asked."""

    policy_header_file: Annotated[
        Path | None,
        _option(
            "Headers of requests to the policy's server, a line 'Name: value' each, such as its token; read again "
            "when it changes. Unlike in a URL, a secret in it is in no list of processes. "
            f"[default: ${HEADER_FILE}]"
        ),
    ] = None
    policy_ca: Annotated[
        Path | None,
        _option(
            "Certificates of the authority that signs that of the policy's server (PEM). "
            f"[default: ${CA_FILE}, else those of the system]"
        ),
    ] = None

    def use(self) -> None:
        """Let this process and its workers ask like that. Raises InputError: a file cannot be used."""
        if self.policy_header_file is not None:
            read_headers(self.policy_header_file)
            # By the environment, which the processes of --jobs inherit. They may have another working directory.
            os.environ[HEADER_FILE] = os.path.abspath(self.policy_header_file)
        if self.policy_ca is not None:
            read_authority(self.policy_ca)
            os.environ[CA_FILE] = os.path.abspath(self.policy_ca)
