"""The command `steersman`, and `python -m steersman`: a signal is one line, even while modules are imported."""

import sys

from steersman.core.early_signals import end_at_signals


def main() -> int:
    """Run the command line; its exit status."""
    end_at_signals()
    from steersman.cli.main import main as run

    return run()


def complete_for_kubectl() -> int:
    """Offer completions of `kubectl steersman`, for which kubectl runs the program kubectl_complete-steersman."""
    end_at_signals()
    from steersman.cli.main import complete_for_kubectl as run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
