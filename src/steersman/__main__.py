"""The command `steersman`, and `python -m steersman`: Ctrl-C while modules are imported is no traceback either."""

import sys


def main() -> int:
    """Run the command line; its exit status."""
    try:
        from steersman import cli
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
