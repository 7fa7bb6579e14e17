"""How long it takes to import tacit and to start its command line, each in a new process.

    python benchmarks/imports.py [REPEATS]

`import tacit` is to stay under 0.3 seconds; tests/api/test_front_page.py checks that it loads nothing heavy.
"""

import statistics
import subprocess
import sys
import time

PROGRAMS = {
    "python": "pass",
    "import tacit": "import tacit",
    "tacit.train": "import tacit; tacit.train",
    "tacit.Config": "import tacit; tacit.Config",
    "every name": "import tacit; [getattr(tacit, name) for name in tacit.__all__]",
    "tacit --help": "import sys; sys.argv = ['tacit', '--help']; from tacit.cli.main import main; main()",
}


def seconds(program: str) -> float:
    """Of one new process."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main(repeats: int) -> None:
    """The median of each, in turn, so that a busy machine slows all alike."""
    times: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(repeats):
        for name, program in PROGRAMS.items():
            times[name].append(seconds(program))
    for name, taken in times.items():
        print(f"{name:14} {statistics.median(taken):6.3f} s (fastest {min(taken):.3f})")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
