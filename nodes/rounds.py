"""The nodes inside an agent's graph that keep its conversation, and decide how a round goes on.

The conversation is the graph's state, so that each step stores only what it adds to it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, Union

from graphrt.errors import HookBlockedError
from graphrt.graph.protocols import NodeKind
from graphrt.graph.signature import NodeSignature, Param
from graphrt.graph.state import Update
from graphrt.messages import LLMResponse, Message
from graphrt.nodes.conversation import AgentState, Misfit, Prompt, ToolCalls, Transcript, as_messages
from graphrt.nodes.inference import MESSAGES, FallbackNode, note_before
from graphrt.threads import run_in_thread

if TYPE_CHECKING:
    from graphrt.graph.protocols import Node
    from graphrt.graph.scheduler.context import RunContext
    from graphrt.nodes.inference import InferenceNode
    from graphrt.nodes.phased import Phases
    from graphrt.nodes.structured import OutputFormat

InputCheck: TypeAlias = Callable[[Any], bool | str | Awaitable[bool | str | None] | None]
"""Judges what an agent is given: True or None lets it pass; False, or a text that says why, does not."""

_ERROR: Final = Param("error", Exception)


class SpeakingNode:
    """Ask a model with the conversation so far, and add its reply to it."""

    def __init__(
        self,
        model: InferenceNode,
        state: type[AgentState],
        *,
        form: OutputFormat | None,
        last_round: int | None,
        phases: Phases | None = None,
    ) -> None:
        """Wrap a node that asks a model.

        Args:
            model: The node.
            state: The graph's state.
            form: The form of the answer: then a reply of which the provider says that it is not of it is kept.
            last_round: The round in which no tools are offered; None for no such round.
            phases: Plugins that act before and after the model is asked.
        """
        self._model = model
        self._form = form
        self._last_round = last_round
        self._phases = phases
        messages = Param("messages", Prompt | None)
        before = (_ERROR,) if isinstance(model, FallbackNode) else ()
        gives = LLMResponse if form is None else form.reply_type
        self.signature = NodeSignature((*before, messages, Param("state", state)), gives)
        self.name = model.name
        self.kind = model.kind

    async def run(self, inputs: Mapping[str, Any], ctx: RunContext[Any]) -> Update[LLMResponse]:
        """Ask the model.

        Raises:
            LlmError: The model could not be asked, or its reply was not accepted.
            LimitExceededError: The run's budget is spent.
        """
        state: AgentState = inputs["state"]
        new = () if state.messages else as_messages(inputs["messages"])
        last = self._last_round is not None and ctx.step.round >= self._last_round
        try:
            response = await self._model.ask(
                (*state.messages, *new),
                ctx,
                with_tools=not last,
                keep_misfits=self._form is not None,
                phases=None if self._phases is None else await self._phases.of(ctx),
            )
        except Exception as error:
            if "error" in inputs:
                note_before(error, inputs["error"])
            raise
        if self._form is not None:
            response = self._form.typed(response)
        wrote: dict[str, Any] = {"given": len(new)} if new else {}
        if last:
            wrote["cut_short"] = True
            if response.tool_calls:
                response = response.model_copy(update={"tool_calls": []})
        return Update(response, messages=Transcript((*new, response.to_message())), **wrote)


class ReplyNode:
    """Tell what a reply is: calls of tools, the answer, or nothing of the form asked for."""

    kind = NodeKind.ROUTER
    name = "reply"

    def __init__(
        self, output: Any, form: OutputFormat | None, *, waits_for: str | None = None, phases: Phases | None = None
    ) -> None:
        """Take the type of the answer, the name of a node whose verdict the first reply waits for, and the plugins."""
        self._form = form
        self._phases = phases
        kinds = (ToolCalls, output) if form is None else (ToolCalls, Misfit, output)
        params = [Param("response", LLMResponse)]
        if waits_for is not None:
            params.append(Param(waits_for, default=None))
        self.signature = NodeSignature(tuple(params), Union[kinds])  # noqa: UP007  # made at run time

    async def run(self, inputs: Mapping[str, Any], ctx: RunContext[Any]) -> Any:
        """Read the reply; an answer ends the last round, and with it the run of the agent.

        Raises:
            Exception: What a plugin's hook raised.
        """
        read = self._read(inputs["response"])
        if self._phases is not None and not isinstance(read, (ToolCalls, Misfit)):
            phases = await self._phases.of(ctx)
            await phases.end_round()
            await phases.finish()
        return read

    def _read(self, response: LLMResponse) -> Any:
        if response.tool_calls:
            return ToolCalls(tuple(response.tool_calls))
        if self._form is None:
            return response.content
        try:
            return self._form.read(response)
        except ValueError as error:
            return Misfit(str(error))


class AnsweringNode:
    """Add what a tool's node answers to the conversation; its value is the id of the call."""

    def __init__(self, tool: Node) -> None:
        """Wrap a node that gives a `Message`."""
        self._tool = tool
        self.signature = NodeSignature(tool.signature.params, str)
        self.name = tool.name
        self.kind = tool.kind

    async def run(self, inputs: Mapping[str, Any], ctx: RunContext[Any]) -> Update[str]:
        """Answer the call; raises what the wrapped node raises."""
        message: Message = await self._tool.run(inputs, ctx)
        return Update(message.tool_call_id or "", messages=Transcript((message,)))


class ResultsNode:
    """End a round: every call has its answer, in the order of the calls."""

    kind = NodeKind.JOIN
    name = "results"

    def __init__(self, *, structured: bool, phases: Phases | None = None) -> None:
        """Say whether a reply may also come here that is not of the form asked for, and take the plugins."""
        self._phases = phases
        params = [Param("answered", list[str] | None, None)]
        if structured:
            params.append(Param("misfit", Misfit | None, None))
        self.signature = NodeSignature(tuple(params), NoneType)

    async def run(self, inputs: Mapping[str, Any], ctx: RunContext[Any]) -> Update[None] | None:
        """Tell the model what was wrong with its reply, if something was.

        Raises:
            Exception: What a plugin's hook raised.
        """
        if self._phases is not None:
            await (await self._phases.of(ctx)).end_round()
        misfit: Misfit | None = inputs.get("misfit")
        if misfit is None:
            return None
        return Update(None, messages=Transcript((Message.user(misfit.complaint),)))


class InputCheckNode:
    """Judge what the agent was given before anything is done with it."""

    kind = NodeKind.FUNCTION
    name = "check"

    def __init__(self, agent: str, check: InputCheck, *, passes_on: bool) -> None:
        """Take the check; *passes_on* says whether the input is the node's value."""
        self._agent = agent
        self._check = check
        self._passes_on = passes_on
        self.signature = NodeSignature((MESSAGES,), Prompt if passes_on else NoneType)

    async def run(self, inputs: Mapping[str, Any], ctx: RunContext[Any]) -> Any:
        """Ask the check, in a thread if it is synchronous.

        Raises:
            HookBlockedError: The input does not pass, or the check raised an exception.
        """
        given = inputs["messages"]
        try:
            verdict = await self._ask(given)
        except Exception as error:
            raise self._blocked(f"{type(error).__name__}: {error}", error) from error
        if verdict is None or verdict is True:
            return given if self._passes_on else None
        if verdict is False or isinstance(verdict, str):
            raise self._blocked(verdict or "", None)
        raise self._blocked(f"the check returned {type(verdict).__name__}, and not True, None, False or a text", None)

    async def _ask(self, given: Any) -> Any:
        check: Any = self._check
        if inspect.iscoroutinefunction(check) or inspect.iscoroutinefunction(type(check).__call__):
            return await check(given)
        verdict = await run_in_thread(check, given)
        return await verdict if inspect.isawaitable(verdict) else verdict

    def _blocked(self, reason: str, cause: BaseException | None) -> HookBlockedError:
        hook = f"input_check of agent {self._agent}"
        return HookBlockedError(reason, event="input", hook=hook, cause=cause)
