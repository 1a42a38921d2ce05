"""`gate export`: run the exporter, look at what came out, and let it count only if it has a whole head.

A failed export leaves graphs behind that look like success, and one of an older version leaves the head out and ends
with code 0. So it writes into a place beside --out, which is renamed only after inspection.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from evals.export.environment import clean_environment, last_words
from evals.export.stage import needs_staging, stage
from evals.headbuild.checkpoint import Checkpoint, read_checkpoint
from evals.inspection.directory import inspect_directory
from evals.model_dir import ModelDirError
from evals.new_dir import new_directory, refuse_existing

if TYPE_CHECKING:
    from evals.headbuild.formats import WeightFormat
    from evals.inspection.types import Inspection

TASK = "image-text-to-text"
"""To the exporter every checkpoint of this family takes images; text needs no other directory."""


class ExportFailed(ModelDirError):
    """The exporter ended with an error, or what it wrote has no whole head."""


def check_checkpoint(checkpoint: Path, out: Path) -> Checkpoint:
    """Everything that can be said before the exporter is there. Raises ModelDirError."""
    refuse_existing(out)
    return read_checkpoint(checkpoint)


def export(
    checkpoint: Checkpoint,
    out: Path,
    python: Path,
    weight_format: WeightFormat,
    *,
    group: int,
    verbose: bool = False,
) -> Inspection:
    """Export to `out` with an interpreter that has optimum-intel; returns what inspection says of it.

    verbose: the exporter's output goes to stderr. Raises ModelDirError; nothing is left at `out` then.
    """
    with new_directory(out) as made, tempfile.TemporaryDirectory(prefix="gate-export-") as scratch:
        _place(checkpoint, Path(scratch), weight_format)
        command = [
            str(python),
            "-m",
            "optimum.commands.optimum_cli",
            "export",
            "openvino",
            "--model",
            "checkpoint",
        ]
        command += ["--task", TASK, "--weight-format", weight_format]
        if weight_format == "int4":
            command += ["--group-size", str(group), "--group-size-fallback", "ignore"]
        _run([*command, str(made.resolve())], Path(scratch), verbose)
        return _look(made, out)


def _place(checkpoint: Checkpoint, scratch: Path, weight_format: WeightFormat) -> None:
    """The checkpoint under a relative name, because the exporter writes its path into openvino_config.json."""
    place = scratch / "checkpoint"
    try:
        if needs_staging(checkpoint, weight_format):
            place.mkdir()
            stage(checkpoint, place)
        else:
            place.symlink_to(checkpoint.path.resolve())
    except OSError as error:
        raise ExportFailed(
            f"{scratch}: cannot be written ({error.strerror or error}). Set TMPDIR to a place with room for "
            f"{checkpoint.bytes * 2} bytes."
        ) from error


def _run(command: list[str], scratch: Path, verbose: bool) -> None:
    with (scratch / "log").open("w+b") as log:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr if verbose else log,
            stderr=None if verbose else subprocess.STDOUT,
            cwd=scratch,
            env=clean_environment(),
            check=False,
        )
        log.seek(max(0, log.seek(0, 2) - 16000))
        last = last_words(log.read())
    if ended.returncode != 0:
        how = f"signal {-ended.returncode}" if ended.returncode < 0 else f"code {ended.returncode}"
        raise ExportFailed(
            f"the exporter ended with {how}: {last or 'see above'}. Nothing was written; --verbose shows all it says."
        )


def _look(made: Path, out: Path) -> Inspection:
    found = inspect_directory(made)
    wrong = [problem for problem in found.problems if problem.severity == "error"]
    if wrong or found.layout != "exported":
        said = wrong[0].message if wrong else f"expected a head in the exported layout, found {found.layout}"
        where = f"{wrong[0].where}: " if wrong and wrong[0].where else ""
        raise ExportFailed(
            f"the exporter ended without an error, but what it wrote can't be gated, and was removed: "
            f"{where}{said.replace(str(made), str(out))}"
        )
    return found
