"""How right the gate is: `python -m tests.faults.table` judges the corpus and prints what became of it.

Per kind of fault: how many were blocked (anything but serve), how many by the right reason code, and
which other codes decided. For clean situations: how many were served. Both halves apart, each rate with its exact
(Clopper-Pearson) 95 % interval. Exits 1 where a fault was served or named wrongly, or over 1 % of clean ones was not
served.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import msgspec
from scipy.stats import binomtest

from gate.policy import load_policy
from gate.types import Verdict
from tests.faults.corpus import situations, tools_for
from tests.faults.recorded import Recorded
from tests.faults.situation import POLICIES, Situation, verdict

MAX_FALSE_BLOCKS = 0.01


class Judged(msgspec.Struct, frozen=True):
    """A situation and what the gate made of it. reasons: the codes that decided."""

    situation: Situation
    decision: str
    reasons: tuple[str, ...]
    sentence: str

    @property
    def differs(self) -> bool:
        """Whether an answer of the arm isn't plain's."""
        run = self.situation.run
        plain = {a.prompt: a.ids for a in run.first("plain")}
        return any(a.ids != plain[a.prompt] for a in run.first(run.arm))

    @property
    def blocked(self) -> bool:
        return self.decision != "serve"

    @property
    def right(self) -> bool:
        """Clean and served, or faulty and blocked by a right reason."""
        if self.situation.clean:
            return not self.blocked
        return self.blocked and bool(self.situation.label & set(self.reasons))


def judge_all(recorded: Recorded) -> list[Judged]:
    """The corpus, judged by the default policy."""
    tools = tools_for(recorded)
    policies = {name: change(load_policy(None)) for name, change in POLICIES.items()}
    return [
        _judged(s, verdict(s.run, dict(tools.tasks), s.tokens or tools.tokens, policies[s.policy]))
        for s in situations(recorded, tools)
    ]


def _judged(situation: Situation, found: Verdict) -> Judged:
    reasons = dict.fromkeys([*found.reasons, *(code for task in found.tasks for code in task.reasons)])
    return Judged(situation, found.decision, tuple(reasons), found.sentence)


def rate(part: int, whole: int) -> str:
    """A share with its counts and its exact 95 % interval."""
    if not whole:
        return "none"
    interval = binomtest(part, whole).proportion_ci(method="exact")
    return f"{part}/{whole} = {part / whole:.1%} ({interval.low:.1%} to {interval.high:.1%})"


def by_fault(judged: Iterable[Judged]) -> dict[str, list[Judged]]:
    groups: dict[str, list[Judged]] = defaultdict(list)
    for item in judged:
        if not item.situation.clean:
            groups[item.situation.fault].append(item)
    return groups


def confusion(judged: Sequence[Judged]) -> list[str]:
    """One line a reason code: how often it was the right one and decided, was right and did not, decided wrongly."""
    hit, missed, wrong = Counter[str](), Counter[str](), Counter[str]()
    for item in judged:
        label, reasons = item.situation.label, set(item.reasons)
        for code in label & reasons:
            hit[code] += 1
        if label and not label & reasons:
            missed[" or ".join(sorted(label))] += 1
        if item.situation.clean:
            for code in reasons:
                wrong[code] += 1
    codes = sorted(hit.keys() | missed.keys() | wrong.keys())
    return [f"{code:34} {hit[code]:6} {missed[code]:7} {wrong[code]:15}" for code in codes]


def main() -> int:
    judged = judge_all(Recorded())
    print(f"{'fault':46} {'made':>4} {'blocked':>7} {'right code':>10}  codes that decided")
    for fault, items in sorted(by_fault(judged).items()):
        codes = Counter(code for i in items for code in i.reasons)
        told = ", ".join(f"{code} {n}" for code, n in codes.most_common(5))
        print(
            f"{fault:46} {len(items):4} {sum(i.blocked for i in items):7} {sum(i.right for i in items):10}  {told}"
        )
    print(f"\n{'reason code':34} {'right':>6} {'missed':>7} {'on clean ones':>15}")
    print("\n".join(confusion(judged)))
    print()
    for half in ("a", "b", "ab"):
        clean = [i for i in judged if i.situation.clean and i.situation.half in half]
        faults = [i for i in judged if not i.situation.clean and i.situation.half in half]
        print(f"half {'a and b' if len(half) > 1 else half}:")
        differ = [i for i in clean if i.differs]
        print(f"  clean and not served  {rate(sum(i.blocked for i in clean), len(clean))}")
        print(f"    those that differ   {rate(sum(i.blocked for i in differ), len(differ))}")
        print(f"  faults blocked        {rate(sum(i.blocked for i in faults), len(faults))}")
        print(f"  by the right code     {rate(sum(i.right for i in faults), len(faults))}")
    clean = [i for i in judged if i.situation.clean]
    wrong = [i for i in judged if not i.right]
    for item in wrong:
        label = " or ".join(sorted(item.situation.label)) or "serve"
        print(
            f"WRONG {item.situation.name}: expected {label}, found {item.decision} {', '.join(item.reasons)}"
        )
    missed = [i for i in wrong if not i.situation.clean]
    return 1 if missed or len(wrong) - len(missed) > MAX_FALSE_BLOCKS * len(clean) else 0


if __name__ == "__main__":
    sys.exit(main())
