"""The command `steersman`, and `python -m steersman`: Ctrl-C while modules are imported is no traceback either."""

import sys


def main() -> int:
    """Run the command line; its exit status."""
    try:
        from steersman.cli.main import main as run
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return run()


def complete_for_kubectl() -> int:
    """Offer completions of `kubectl steersman`, for which kubectl runs the program kubectl_complete-steersman."""
    from steersman.cli.main import complete_for_kubectl as run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
