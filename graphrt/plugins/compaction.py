"""Old messages give way to a summary when a conversation grows too large: in what is sent, never in what is kept."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from graphrt.config import CompactConfig, ContextPolicy
from graphrt.errors import ConfigError, GraphrtError, LimitExceededError, LlmError, LlmErrorKind
from graphrt.llm.executor import InferenceRequest
from graphrt.llm.openai import REFUSED
from graphrt.messages import Message, TokenUsage
from graphrt.plugins.checkpoint import CHECKPOINT_KEY, Checkpoint, current_checkpoint, transcript, with_summary
from graphrt.plugins.phases import Phase
from graphrt.plugins.plugin import Plugin, PluginDescriptor
from graphrt.plugins.sections import ConfigSchema
from graphrt.plugins.state import StateCommand, StateKey
from graphrt.plugins.tokens import Count, counter, input_budget, tool_tokens, total
from graphrt.plugins.units import awaits_answers, last_cut, prefix_length

if TYPE_CHECKING:
    from graphrt.graph.scheduler.limits import BudgetTracker
    from graphrt.llm.executor import LLMExecutor
    from graphrt.messages import LLMResponse
    from graphrt.plugins.phases import PhaseContext, RunView
    from graphrt.plugins.registrar import PluginRegistrar

FAILURE_KEY: Final = "compaction.failure"
"""Name of the state key that holds how often a summary failed in a row, and how long the conversation was then."""

_NO_SUMMARY: Final = frozenset({"length", "content_filter", REFUSED})  # ways to stop short of one
_GUESSED_RATIO: Final = 5  # a summary is expected to take a fifth of what it replaces
_SHORTEST_EXCERPT: Final = 200  # characters of each message that the model sees at least
_MAX_DOUBLINGS: Final = 6
_LEAST_REPLACED: Final = 2  # messages; one in the place of one is no summary

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a new summary is to replace."""

    conversation: Sequence[Message]
    earlier: Checkpoint | None
    """The summary so far, which the new one carries on."""
    cut: int
    """The first message that stays, counted in the whole conversation."""
    replaced: int
    """Tokens that the summary will stand for, the earlier summary's included."""
    before: int
    """Tokens of the conversation as it is sent now."""

    @property
    def new(self) -> Sequence[Message]:
        """The messages that no summary has covered yet."""
        return self.conversation[0 if self.earlier is None else self.earlier.covered : self.cut]


class CompactionPlugin(Plugin):
    """Replace old messages by a summary in what is sent, when the conversation takes too many tokens.

    Before an inference whose calls have all been answered, the model is asked, without tools, to sum up what came
    before the last `keep_recent` messages, an earlier summary included. As many messages as the policy calls recent
    are kept where that is enough. The summary is sent as a message of the user in `<summary>` tags, after the
    system messages. What the conversation keeps does not change: the summary, what it covers and a digest of that
    are in the state key `compaction.checkpoint`, which a session carries from turn to turn. A history that was
    edited is sent whole again.

    If no summary of use can be had, everything stays as it is, and the run goes on: the event
    `custom.compaction.failed` and a warning in the log say why, and the next try waits until the conversation has
    grown, twice as much after each failure. `custom.compaction.done` tells the tokens before and after.

    Usage counts for the run and its budget. With only one request left in the budget nothing is summed up: it is
    the answer's.
    """

    always_active: ClassVar[bool] = True

    def __init__(
        self,
        config: CompactConfig | None = None,
        policy: ContextPolicy | None = None,
        *,
        executor: LLMExecutor,
        model: str | None = None,
        cost_of: Callable[[TokenUsage], float] | None = None,
    ) -> None:
        """Take the settings and whom to ask.

        Args:
            config: When to sum up, and what to keep.
            policy: Gives the threshold where *config* has none, the estimator, and what the model takes.
            executor: Asked for the summary.
            model: The provider's own name of the model.
            cost_of: What a call has cost; needed when the run's budget limits the cost.
        """
        self.config = CompactConfig() if config is None else config
        self.policy = ContextPolicy() if policy is None else policy
        self._executor = executor
        self._model = model
        self._cost_of = cost_of
        self._count = counter(self.policy)
        self._flights: dict[tuple[str | None, ...], Checkpoint | None] = {}
        """Runs with a summary on its way, as None, or made and perhaps not yet committed."""

    @property
    def descriptor(self) -> PluginDescriptor:
        """Id `compaction`."""
        return PluginDescriptor(
            "compaction", "Replace old messages by a summary when the conversation grows too large."
        )

    def config_schemas(self) -> list[ConfigSchema]:
        """Read the section `compaction`."""
        return [ConfigSchema("compaction", CompactConfig)]

    def register(self, registrar: PluginRegistrar) -> None:
        """Act before inferences, and on every request."""
        registrar.state_key(StateKey(CHECKPOINT_KEY, None, keep=True))
        registrar.state_key(StateKey(FAILURE_KEY, None, keep=True))
        registrar.phase_hook(Phase.BEFORE_INFERENCE, self.before_inference)
        registrar.phase_hook(Phase.RUN_END, self.run_end)
        registrar.request_transform(self.transform)

    def transform(self, request: InferenceRequest, ctx: PhaseContext) -> InferenceRequest:
        """Put the summary in the place of what it covers."""
        messages = with_summary(request.messages, ctx.state)
        return request if messages is request.messages else request.replace(messages=messages)

    async def before_inference(self, ctx: PhaseContext) -> StateCommand | None:
        """Have the conversation summed up if it is too large; only one summary of a run is made at a time."""
        run = (ctx.run_id, ctx.agent_id, ctx.session_id)
        plan = self._plan(ctx)
        if plan is None:
            return None
        if run in self._flights:
            made = self._flights[run]
            if made is None:
                return None
            if made != plan.earlier and made.holds(plan.conversation):
                return _stored(made)  # this state is from before it was committed
        self._flights[run] = None
        checkpoint = None
        try:
            checkpoint = await self._sum_up(plan, ctx.run)
        except Exception as error:  # a summary is a help: the run can do without it
            mistake = None if isinstance(error, GraphrtError) else error
            log.warning("run %r goes on without a summary: %s", ctx.run_id, error, exc_info=mistake)
            data = {"error": f"{type(error).__name__}: {error}", "messages": len(plan.new)}
            ctx.run.emit("custom.compaction.failed", data)
            return StateCommand().update(FAILURE_KEY, _one_more(ctx.state.get(FAILURE_KEY), len(plan.conversation)))
        finally:
            if checkpoint is None:
                self._flights.pop(run, None)
        self._flights[run] = checkpoint
        return _stored(checkpoint)

    def run_end(self, ctx: PhaseContext) -> None:
        """Forget the run."""
        self._flights.pop((ctx.run_id, ctx.agent_id, ctx.session_id), None)

    def _plan(self, ctx: PhaseContext) -> Plan | None:
        """Say what to sum up; None when that is not needed, not worth it, or not possible now."""
        start = prefix_length(ctx.messages)
        conversation = ctx.messages[start:]
        if not conversation or awaits_answers(conversation) or _waits(ctx.state.get(FAILURE_KEY), len(conversation)):
            return None
        threshold = self.config.threshold_tokens
        if threshold is None:
            asked = ctx.messages if ctx.request is None else ctx.request.messages
            threshold = input_budget(self.policy) - total(asked[: prefix_length(asked)], self._count)
            threshold -= 0 if ctx.request is None else tool_tokens(ctx.request.tools)
        plan = plan_summary(
            conversation,
            current_checkpoint(ctx.state, conversation),
            threshold=threshold,
            keep=(max(self.config.keep_recent, self.policy.min_recent_messages), self.config.keep_recent),
            ratio=self.config.min_savings_ratio,
            count=self._count,
        )
        return plan if plan is not None and _can_spare(_budget(ctx.run), plan.replaced) else None

    async def _sum_up(self, plan: Plan, run: RunView) -> Checkpoint:
        """Ask for the summary, and tell that it is made.

        Raises:
            LlmError: The model could not be asked, or what it answered is of no use.
            LimitExceededError: The run's budget is spent.
        """
        response = await self._ask(self._request(plan), run, at_most=plan.replaced)
        summary = _stripped(response.content)
        if response.finish_reason in _NO_SUMMARY:
            raise LlmError(f"the summary is not whole: the model stopped for {response.finish_reason!r}")
        if not summary:
            raise LlmError("the summary is empty")
        checkpoint = Checkpoint.of(plan.conversation, plan.cut, summary)
        saved = plan.replaced - self._count(checkpoint.message)
        if saved <= 0 or saved < self.config.min_savings_ratio * plan.before:
            raise LlmError(
                f"the summary saves {max(0, saved)} of {plan.before} tokens, which is too little",
                LlmErrorKind.INVALID_REQUEST,
                hint="ask for a shorter one with summary_prompt, or lower min_savings_ratio",
            )
        usage = response.usage
        data = {
            "messages": len(plan.new),
            "covered": plan.cut,
            "tokens_before": plan.before,
            "tokens_after": plan.before - saved,
            "usage": None if usage is None else usage.model_dump(exclude_none=True),
        }
        run.emit("custom.compaction.done", data)
        return checkpoint

    def _request(self, plan: Plan) -> InferenceRequest:
        """Make the request for the summary; long messages are shortened where the model could not take them."""
        instruction = Message.system(self.config.summary_prompt)
        room = input_budget(self.policy) - self._count(instruction)
        limit = None
        question = Message.user(transcript(plan.new, plan.earlier))
        while self._count(question) > room and (limit is None or limit > _SHORTEST_EXCERPT):
            longest = max(len(each.content) for each in plan.new)
            limit = max(_SHORTEST_EXCERPT, (longest if limit is None else limit) // 2)
            question = Message.user(transcript(plan.new, plan.earlier, limit))
        return InferenceRequest(self._model, [instruction, question])

    async def _ask(self, request: InferenceRequest, run: RunView, *, at_most: int) -> LLMResponse:
        """Ask the model, and count what that took however it ends.

        Where the run's tokens are limited the summary may have *at_most* tokens, so that others have some left.
        """
        budget, reserved = _budget(run), None
        if budget is not None:
            if budget.budget.cost is not None:
                if self._cost_of is None:
                    raise ConfigError(
                        "the run's budget limits the cost, and compaction does not know what its model costs",
                        hint="give the model prices, or leave the cost out of the budget",
                    )
                budget.add_cost(0.0)
            reserved = budget.take_request(None if budget.budget.tokens is None else max(1, at_most))
            if reserved is not None:
                request.params["max_tokens"] = reserved
        try:
            response = await self._executor.execute(request)
        except Exception as error:
            reply = getattr(error, "reply", None)
            if reply is not None:
                self._settle(reply.usage, reserved, run)
            elif budget is not None:
                budget.release_request(reserved)
            raise
        self._settle(response.usage, reserved, run)
        return response

    def _settle(self, usage: TokenUsage | None, reserved: int | None, run: RunView) -> None:
        budget = _budget(run)
        run.record_usage(usage)
        if budget is None or usage is None:
            return
        budget.settle_tokens(reserved, usage.known_total)
        if self._cost_of is not None:
            with suppress(LimitExceededError):  # it is counted all the same, and the next call is refused
                budget.add_cost(self._cost_of(usage))


def plan_summary(
    conversation: Sequence[Message],
    earlier: Checkpoint | None,
    *,
    threshold: int,
    keep: Sequence[int],
    ratio: float,
    count: Count,
) -> Plan | None:
    """Choose what a summary is to replace; None when none is needed, or none could save enough.

    Args:
        conversation: All of it, without the system messages before it.
        earlier: The summary so far, which holds for the conversation.
        threshold: Tokens up to which nothing is done.
        keep: Messages to keep, most wanted first; the first number with which the rest should get under the
            threshold is taken, else the last one that saves enough.
        ratio: Part of the tokens that has to be saved at least.
        count: Gives the tokens of a message.
    """
    covered = 0 if earlier is None else earlier.covered
    head = 0 if earlier is None else count(earlier.message)
    rest = conversation[covered:]
    sizes = [count(each) for each in rest]
    before = head + sum(sizes)
    if before <= threshold:
        return None
    best = None
    for wanted in keep:
        cut = last_cut(rest, wanted)
        replaced = head + sum(sizes[:cut])
        if cut == 0 or cut + (earlier is not None) < _LEAST_REPLACED or replaced < ratio * before:
            continue
        best = Plan(conversation, earlier, covered + cut, replaced, before)
        if before - replaced + replaced // _GUESSED_RATIO <= threshold:
            return best
    return best


def _stored(checkpoint: Checkpoint) -> StateCommand:
    return StateCommand().update(CHECKPOINT_KEY, checkpoint.plain()).update(FAILURE_KEY, None)


def _budget(run: RunView) -> BudgetTracker | None:
    budget: BudgetTracker | None = getattr(run, "budget", None)
    return budget


def _can_spare(budget: BudgetTracker | None, tokens: int) -> bool:
    """Say whether a budget has room for a summary of *tokens* tokens and an answer after it."""
    if budget is None:
        return True
    requests, left = budget.budget.requests, budget.tokens_left
    return (requests is None or requests - budget.requests > 1) and (left is None or left > tokens)


def _waits(failure: Any, length: int) -> bool:
    """Say whether a conversation of so many messages has to grow before another try."""
    at, failures = _read_failure(failure)
    return failures > 0 and at <= length < at + 2 ** min(failures, _MAX_DOUBLINGS)


def _one_more(failure: Any, length: int) -> dict[str, int]:
    return {"messages": length, "failures": _read_failure(failure)[1] + 1}


def _read_failure(value: Any) -> tuple[int, int]:
    if not isinstance(value, Mapping):
        return 0, 0
    at, failures = value.get("messages"), value.get("failures")
    return (at, failures) if isinstance(at, int) and isinstance(failures, int) else (0, 0)


def _stripped(text: str) -> str:
    """Give a summary without the tags that a model may have copied."""
    return text.strip().removeprefix("<summary>").removesuffix("</summary>").strip()
