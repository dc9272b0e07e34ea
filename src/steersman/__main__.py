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


if __name__ == "__main__":
    sys.exit(main())
