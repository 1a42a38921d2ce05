"""What a run's batches say together: who was in flight with whom, how fast each batch was, whether drafts were made.

Where several requests are in flight openvino-genai counts no drafts for one of them. Its steps show them all the same:
a step of n tokens accepted n - 1 of the K drafts that each verify step makes (fewer where the budget ends before). That
drafts are made at all is seen from steps of more than one token, of any arm of the same engine under the same load:
without one, nothing is known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from evals.crossed import Crossed, Shift, crossed, shifted
from evals.engines import GENAI
from evals.together import BatchRates, Place, place_of
from evals.types import Answer, Arm

FIXED_K = frozenset({"mtp", "control", "draft", "eagle3"})
"""Methods that draft K tokens for every verify step (greedy, no confidence threshold)."""


class Batches:
    """Takes note of all answers in one pass (`add`), then tells of each."""

    def __init__(self, arms: Iterable[Arm]) -> None:
        self._arms = {arm.name: arm for arm in arms}
        self._rates = BatchRates()
        self._members: defaultdict[Place, list[tuple[str, str]]] = defaultdict(list)
        self._drafting: set[tuple[str, int]] = set()
        self._shifts: defaultdict[Place, list[tuple[Answer, Shift]]] = defaultdict(list)

    def add(self, answer: Answer) -> None:
        if answer.batch is None:
            return
        self._rates.add(answer)
        self._members[place_of(answer)].append((answer.task, answer.prompt))
        arm = self._arms.get(answer.arm)
        if arm is not None and any(step > 1 for step in answer.steps):
            self._drafting.add((arm.engine, arm.concurrency))

    def rate(self, answer: Answer) -> float | None:
        """Tokens per second of the answer's batch (`evals.together`)."""
        return self._rates.rate(place_of(answer))

    def counted(self, answer: Answer) -> Answer:
        """The answer with its accepted and drafted tokens read off its steps, where the runtime has no counters."""
        arm = self._arms.get(answer.arm)
        if (
            arm is None
            or answer.batch is None
            or answer.failure
            or answer.drafted is not None
            or not answer.steps
        ):
            return answer
        if arm.engine != GENAI or arm.method not in FIXED_K or (GENAI, arm.concurrency) not in self._drafting:
            return answer
        accepted = drafted = 0
        position = answer.steps[0]
        for step in answer.steps[1:]:
            accepted += step - 1
            drafted += min(arm.k, answer.max_new_tokens - position - 1)
            position += step
        return msgspec.structs.replace(answer, accepted=accepted, drafted=max(drafted, accepted))

    def crossed(
        self,
        answer: Answer,
        reference: Callable[[str, str], Answer | None],
        exact: Mapping[str, bool],
    ) -> Crossed | None:
        """Whether the answer is that to another prompt of its batch. reference: the answer due to a task's prompt.

        exact: task → whether each prompt has one right answer. Two prompts of a task that isn't exact may honestly
        have one answer, so they say nothing of each other.
        """
        due = reference(answer.task, answer.prompt)
        if answer.batch is None or due is None or due.failure or answer.text == due.text:
            return None
        shift = shifted(answer.text, due.text)
        if shift is not None:
            bare = msgspec.structs.replace(answer, ids=(), steps=(), text="", streamed=None)
            self._shifts[place_of(answer)].append((bare, shift))
        others = [
            (task, prompt, other.text)
            for task, prompt in self._members[place_of(answer)]
            if (task, prompt) != (answer.task, answer.prompt)
            and (task != answer.task or exact.get(task))
            and (other := reference(task, prompt)) is not None
            and not other.failure
        ]
        return crossed(answer.text, due.text, others)

    def chunks(self) -> Iterator[tuple[Answer, Crossed]]:
        """Chunks that one answer of a batch lacks and another has too many, of the answers that `crossed` was asked of:
        each of the two, without its text."""
        for shifts in self._shifts.values():
            for loser, lost in shifts:
                for receiver, received in shifts:
                    if lost.went_to(received):
                        size = len(lost.chunk)
                        yield loser, Crossed(receiver.task, receiver.prompt, "lost", lost.at, size)
                        yield receiver, Crossed(loser.task, loser.prompt, "received", received.at, size)
