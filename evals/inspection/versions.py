"""What the graphs were made with, against what is installed here and would run them."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from evals.inspection.graph import Graph
from evals.inspection.types import Part, Problem

PACKAGES = ("openvino", "openvino-genai", "openvino-tokenizers")
_NAMES = {
    "Runtime_version": "openvino",
    "openvino_version": "openvino",
    "openvino_tokenizers_version": "openvino-tokenizers",
    "nncf/version": "nncf",
    "optimum/optimum_intel_version": "optimum-intel",
    "optimum/transformers_version": "transformers",
    "transformers_version": "transformers",
}
_NUMBER = re.compile(r"(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?")


def made_with(graph: Graph) -> dict[str, str]:
    """Package → version, from a graph's runtime information."""
    found = {_NAMES[key]: value[:80] for key, value in graph.info.items() if key in _NAMES}
    if "openvino" not in found and "OpenVINO Runtime" in graph.info:
        found["openvino"] = graph.info["OpenVINO Runtime"][:80]
    return found


def installed() -> dict[str, str]:
    """Package → version of those that would decode here; absent ones are left out."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def compare_versions(parts: tuple[Part, ...], here: dict[str, str]) -> tuple[Problem, ...]:
    """Problems for graphs that a newer runtime wrote, tokenizers of another version, and parts of different exports."""
    problems = []
    for package in ("openvino", "openvino-tokenizers"):
        if package not in here:
            continue
        newer = [part for part in parts if _newer(part.versions.get(package, ""), here[package])]
        if newer:
            names = ", ".join(part.name for part in newer[:4])
            message = (
                f"written by {package} {newer[0].versions[package]}, newer than the {here[package]} installed here, "
                f"which may not read it or read it otherwise ({names}). Install at least that version."
            )
            problems.append(Problem("newer-runtime", "warning", message, f"{newer[0].name}.xml"))
        older = [part for part in parts if _newer(here[package], part.versions.get(package, ""))]
        if older and not newer:
            message = (
                f"written by {package} {older[0].versions[package]}, older than the {here[package]} installed here: a "
                "verdict holds for the versions that decoded."
            )
            problems.append(Problem("older-runtime", "note", message, f"{older[0].name}.xml"))
    problems += _mixed(parts)
    return tuple(problems)


def _mixed(parts: tuple[Part, ...]) -> list[Problem]:
    target = next((part for part in parts if part.role == "target"), None)
    head = next((part for part in parts if part.role == "head"), None)
    if target is None or head is None:
        return []
    apart = [
        f"{package} {target.versions[package]} and {head.versions[package]}"
        for package in sorted(target.versions.keys() & head.versions.keys())
        if target.versions[package] != head.versions[package]
    ]
    if not apart:
        return []
    message = f"target and head were made by different exports ({'; '.join(apart)}): check that they belong together."
    return [Problem("mixed-exports", "note", message, f"{head.name}.xml")]


def _newer(one: str, other: str) -> bool:
    """Whether a version's first three numbers are above another's; False where one has none."""
    first, second = _NUMBER.match(one), _NUMBER.match(other)
    if first is None or second is None:
        return False
    return [int(n or 0) for n in first.groups()] > [int(n or 0) for n in second.groups()]
