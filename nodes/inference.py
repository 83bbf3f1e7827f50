"""Asking a model: one call of a model as a node, and the model that stands in for one that has failed."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from graphrt.config import RetryConfig, is_recoverable_llm_error
from graphrt.errors import ConfigError, LlmError, LlmErrorKind
from graphrt.graph.protocols import NodeKind
from graphrt.graph.signature import NodeSignature, Param
from graphrt.hooks import HookContext, HookEvent
from graphrt.llm.executor import InferenceRequest, LLMExecutor, ProviderExecutor
from graphrt.llm.provider import LLMProvider, close_stream
from graphrt.messages import LLMResponse, Message
from graphrt.nodes.conversation import Prompt, as_messages
from graphrt.nodes.phased import plugins_own
from graphrt.nodes.spending import CostOf, Spending
from graphrt.telemetry import conventions as names

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from graphrt.graph.scheduler.context import RunContext
    from graphrt.graph.scheduler.limits import BudgetTracker
    from graphrt.hooks import HookExecutor
    from graphrt.llm.provider import ToolSpec
    from graphrt.llm.retries import Accept
    from graphrt.messages import TokenUsage
    from graphrt.plugins.runtime import PhaseRuntime
    from graphrt.policies import RetryPolicy

Model: TypeAlias = LLMProvider | LLMExecutor | tuple[LLMProvider | LLMExecutor, str | None]
"""Whom to ask: a provider, an executor, or one of them with the provider's own name of the model."""

Prepare: TypeAlias = Callable[[InferenceRequest, "RunContext[Any]"], InferenceRequest | Awaitable[InferenceRequest]]
"""Changes a request before it is sent; what the conversation keeps is not affected."""

OnUsage: TypeAlias = Callable[["TokenUsage | None"], object]
"""Told of each reply of a model, with the usage it reported; None is unknown."""

MESSAGES: Final = Param("messages", Prompt)


def as_executor(model: Model) -> tuple[LLMExecutor, str | None]:
    """Give the executor and the name of the model to ask; a provider is wrapped in an executor.

    Raises:
        ConfigError: It is nothing that can be asked.
    """
    asked, name = model if isinstance(model, tuple) else (model, None)
    if isinstance(asked, LLMProvider):
        return ProviderExecutor(asked), name
    if isinstance(asked, LLMExecutor):
        return asked, name
    raise ConfigError(
        f"the model is {model!r}, which cannot be asked",
        hint="give a provider such as OpenAIProvider('gpt-4o-mini'), an executor, or (provider, 'model name')",
    )


def model_retry(policy: RetryPolicy | RetryConfig | None) -> RetryPolicy | None:
    """Give the policy for a node that asks a model: unless it says otherwise, what another try may mend."""
    if isinstance(policy, RetryConfig):
        policy = policy.to_policy()
    elif policy is not None and policy.retry_on is Exception:
        policy = replace(policy, retry_on=is_recoverable_llm_error)
    return policy


class InferenceNode:
    """Ask a model once, and give its whole reply.

    The reply is streamed, as `message.delta` events, when somebody reads the run's events and the model can
    stream; also when the run's budget limits tokens, so that a call that passes the limit is stopped on its
    way. Usage is added to the run, and a `message.completed` event follows.
    """

    kind = NodeKind.INFERENCE

    def __init__(
        self,
        name: str,
        *,
        model: Model,
        system_prompt: str | None = None,
        tools: Sequence[ToolSpec] = (),
        params: Mapping[str, Any] | None = None,
        accept: Accept | None = None,
        prepare: Prepare | None = None,
        retry: RetryPolicy | None = None,
        hooks: HookExecutor | None = None,
        cost_of: CostOf | None = None,
        on_usage: OnUsage | None = None,
        session_id: str | None = None,
    ) -> None:
        """Take what the model is asked with.

        Args:
            name: Name of the node.
            model: Whom to ask.
            system_prompt: Comes before the messages of each request.
            tools: What the model may call: descriptors of tools.
            params: Request parameters by the names that `LLMProvider.chat` takes.
            accept: Judges each reply; one that is refused is an `LlmError`, and its text is not streamed.
            prepare: Changes each request before it is sent.
            retry: The policy that the node was added with, for *hooks* alone: retries are the engine's.
            hooks: Their `ON_RETRY` hooks are called before each pause.
            cost_of: What a call has cost; needed when the run's budget limits the cost.
            on_usage: Called once for each reply, with the usage it reported.
            session_id: The session that hooks are told of.

        Raises:
            ConfigError: *model* is nothing that can be asked.
        """
        self._name = name
        self._executor, self.model = as_executor(model)
        self._system = () if not system_prompt else (Message.system(system_prompt),)
        self._tools = tuple(tools)
        self._params = {key: value for key, value in (params or {}).items() if value is not None}
        self._accept = accept
        self._prepare = prepare
        self._retry = retry
        self._hooks = hooks
        self._cost_of = cost_of
        self._on_usage = on_usage
        self._session_id = session_id
        self._streams = _can_stream(self._executor)
        self._own_model = _own_model(self._executor)

    @property
    def name(self) -> str:
        """Name of the node."""
        return self._name

    @property
    def signature(self) -> NodeSignature:
        """Takes `messages`, a text or a list of messages, and gives an `LLMResponse`."""
        return NodeSignature((MESSAGES,), LLMResponse)

    async def run(self, inputs: Mapping[str, Any], ctx: RunContext[Any]) -> LLMResponse:
        """Ask the model.

        Raises:
            LlmError: The model could not be asked, or its reply was not accepted.
            LimitExceededError: The run's budget is spent.
        """
        return await self.ask(as_messages(inputs["messages"]), ctx)

    async def ask(
        self,
        messages: Sequence[Message],
        ctx: RunContext[Any],
        *,
        with_tools: bool = True,
        keep_misfits: bool = False,
        phases: PhaseRuntime | None = None,
    ) -> LLMResponse:
        """Ask the model with these messages.

        Args:
            messages: The conversation.
            ctx: The run.
            with_tools: Whether the model is offered the tools.
            keep_misfits: Give also a reply of which the provider says that it is not of the form asked for.
            phases: Plugins that act before and after the model is asked, once in a round.

        Raises:
            LlmError: The model could not be asked, or its reply was not accepted.
            LimitExceededError: The run's budget is spent.
        """
        tools = self._tools if with_tools else ()
        request = InferenceRequest(self.model, [*self._system, *messages], tools, dict(self._params))
        if self._prepare is not None:
            prepared = self._prepare(request, ctx)
            request = await prepared if inspect.isawaitable(prepared) else prepared
        if phases is not None:
            _announce(request, request.model or self._own_model, ctx)  # for a request that a plugin refuses
            with plugins_own():
                request = await phases.prepare(request, round=ctx.step.round)
        call = _Call(self._executor, request, ctx, self._on_usage)
        if ctx.budget is not None:
            call.spend(Spending(ctx.budget, request.params.get("max_tokens"), self._cost_of, node=self._name))
        _announce(request, request.model or self._own_model, ctx)
        try:
            response = await call.make(self._accept, stream=self._streams)
        except Exception as error:
            reply = error.reply if keep_misfits and isinstance(error, LlmError) else None
            if reply is None:
                await self._tell_hooks(error, request, ctx)
                raise
            response = reply
        _report(response, ctx)
        if phases is not None:
            with plugins_own():
                await phases.answered(response)
        return response

    async def _tell_hooks(self, error: Exception, request: InferenceRequest, ctx: RunContext[Any]) -> None:
        attempt, retry = ctx.step.attempt, self._retry
        if self._hooks is None or retry is None or attempt >= retry.attempts or not retry.retries(error):
            return
        delay = retry.wait_before(attempt, error)
        data = {"attempt": attempt, "delay": delay, "error": error, "model": request.model}
        context = HookContext(HookEvent.ON_RETRY, session_id=self._session_id, run_id=ctx.run_id, data=data)

        def span(name: str, told: HookContext) -> AbstractContextManager[Callable[[BaseException], object]]:
            return ctx.hook_span(name, context=told)

        await self._hooks.execute(HookEvent.ON_RETRY, context, span=span)


class FallbackNode(InferenceNode):
    """Ask another model in the place of one that has failed: the target of an `on_error` edge.

    Besides the exception it takes `messages`, by name: it goes with a workflow whose entry node has a
    parameter of that name, as `InferenceNode` has.
    """

    kind = NodeKind.FALLBACK

    @property
    def signature(self) -> NodeSignature:
        """Takes the exception and `messages`, and gives an `LLMResponse`."""
        return NodeSignature((Param("error", Exception), MESSAGES), LLMResponse)

    async def run(self, inputs: Mapping[str, Any], ctx: RunContext[Any]) -> LLMResponse:
        """Ask the model.

        Raises:
            LlmError: This model could not be asked either; the error has a note on the one before.
            LimitExceededError: The run's budget is spent.
        """
        try:
            return await super().run(inputs, ctx)
        except Exception as error:
            note_before(error, inputs["error"])
            raise


def note_before(error: Exception, before: BaseException) -> None:
    """Add to *error* what had failed before it."""
    for note in getattr(before, "__notes__", ()):
        if note.startswith(_BEFORE):
            error.add_note(note)
    error.add_note(f"{_BEFORE}: {type(before).__name__}: {before}")


_BEFORE: Final = "before this, another model failed"


class _Call:
    """One call of a model, and what has come of it so far."""

    __slots__ = (
        "_begun",
        "_ctx",
        "_executor",
        "_on_usage",
        "_replied",
        "_request",
        "_spending",
        "_unanswered",
        "_usage",
    )

    def __init__(
        self, executor: LLMExecutor, request: InferenceRequest, ctx: RunContext[Any], on_usage: OnUsage | None
    ) -> None:
        self._executor = executor
        self._request = request
        self._ctx = ctx
        self._spending: Spending | None = None
        self._usage: TokenUsage | None = None
        self._on_usage = on_usage
        self._begun = False
        self._replied = False
        self._unanswered = False

    def spend(self, spending: Spending) -> None:
        """Take the call out of a budget: the model is asked for no more than is left."""
        self._spending = spending
        if spending.max_tokens is not None:
            self._request.params["max_tokens"] = spending.max_tokens

    async def make(self, accept: Accept | None, *, stream: bool) -> LLMResponse:
        """Ask, count what was used however it ends, and give the reply."""
        try:
            if stream and (self._ctx.watched or _limits_tokens(self._ctx.budget)):
                response = await self._read_stream(held_back=accept is not None)
            else:
                response = await self._executor.execute(self._request)
            self._begun = self._replied = True
            self._usage = response.usage or self._usage
            if accept is not None:
                await _judge(accept, response)
        except Exception as error:
            reply = getattr(error, "reply", None)
            self._unanswered = not self._begun and reply is None
            if reply is not None:
                self._replied = True
                self._usage = reply.usage or self._usage
            raise
        finally:
            self._settle()
        if accept is not None and response.content and stream and self._ctx.watched:
            self._ctx.send_text(response.content)
        return response

    async def _read_stream(self, *, held_back: bool) -> LLMResponse:
        ctx, spending = self._ctx, self._spending
        response = None
        deltas = self._executor.execute_stream(self._request)
        try:
            async for delta in deltas:
                self._begun = True
                if delta.text and not held_back:
                    ctx.send_text(delta.text)
                if delta.usage is not None:
                    self._usage = delta.usage
                    if spending is not None:
                        spending.count(delta.usage)
                response = delta.response or response
        finally:
            await close_stream(deltas)
        if response is None:
            raise LlmError("the stream ended without a reply", LlmErrorKind.PROVIDER)
        return response

    def _settle(self) -> None:
        if self._usage is not None:
            self._ctx.record_usage(self._usage)
        if self._on_usage is not None and (self._replied or self._usage is not None):
            self._on_usage(self._usage)
        if self._spending is None:
            return
        if self._unanswered:
            self._spending.release()
        else:
            self._spending.settle(self._usage)


def _limits_tokens(budget: BudgetTracker | None) -> bool:
    return budget is not None and budget.budget.tokens is not None


async def _judge(accept: Accept, response: LLMResponse) -> None:
    verdict = accept(response)
    if inspect.isawaitable(verdict):
        verdict = await verdict
    if not verdict:
        raise LlmError(f"the reply of {response.model!r} was not accepted", LlmErrorKind.PROVIDER)


def _can_stream(executor: LLMExecutor) -> bool:
    """Whether streaming gives more than the whole reply in one piece."""
    if not isinstance(executor, ProviderExecutor):
        return True
    return type(executor.provider).stream is not LLMProvider.stream


def _own_model(executor: LLMExecutor) -> str | None:
    """Name the model that an executor asks when a request names none, where that can be told."""
    name = getattr(getattr(executor, "provider", None), "model", None)
    return name if isinstance(name, str) else None


def _announce(request: InferenceRequest, model: str | None, ctx: RunContext[Any]) -> None:
    """Tell the run's trace what is asked."""
    if not ctx.traced:
        return
    ctx.annotate(names.OPERATION, names.OPERATION_CHAT)
    ctx.annotate(names.REQUEST_MODEL, model)
    if ctx.captures_content:
        ctx.annotate(names.INPUT_MESSAGES, [_plain(each) for each in request.messages])
        if request.tools:
            ctx.annotate(names.TOOL_DEFINITIONS, [{"name": each.name} for each in request.tools])


def _report(response: LLMResponse, ctx: RunContext[Any]) -> None:
    """Tell the run's trace, and its readers, what was answered."""
    usage = response.usage
    if ctx.traced:
        ctx.annotate(names.RESPONSE_MODEL, response.model)
        if response.finish_reason is not None:
            ctx.annotate(names.FINISH_REASONS, [response.finish_reason])
        if usage is not None:
            ctx.annotate(names.INPUT_TOKENS, usage.input_tokens)
            ctx.annotate(names.OUTPUT_TOKENS, usage.output_tokens)
        if ctx.captures_content:
            ctx.annotate(names.OUTPUT_MESSAGES, [_plain(response.to_message())])
    if ctx.watched:
        data: dict[str, Any] = {
            "message": _plain(response.to_message()),
            "model": response.model,
            "finish_reason": response.finish_reason,
            "usage": None if usage is None else usage.model_dump(exclude_none=True),
        }
        ctx.emit("message.completed", data)


def _plain(message: Message) -> dict[str, Any]:
    """Give a message as plain data, without what it leaves open."""
    return message.model_dump(mode="json", exclude_none=True)
