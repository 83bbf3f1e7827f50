"""`AgentCycle`: one run of an agent, without a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from graphrt.agent.history import without_dangling
from graphrt.agent.registered import prompt_of
from graphrt.agent.session_state import Session
from graphrt.agent.timing import Timer
from graphrt.agent.turn import out_of_time, outcome_of
from graphrt.errors import AgentError
from graphrt.registry.running import RunScope, new_run_id, run_resolved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphrt.agent.agent import Agent
    from graphrt.agent.bundle import RuntimeBundle
    from graphrt.agent.questions import OnAsk
    from graphrt.messages import ChatResponse, Message
    from graphrt.telemetry import Telemetry


class AgentCycle:
    """An `LlmCycle` over an agent and its bundle, for services that need a model with tools."""

    def __init__(
        self, agent: Agent, bundle: RuntimeBundle, *, telemetry: Telemetry | None = None, on_ask: OnAsk | None = None
    ) -> None:
        """Take the agent and what it runs with.

        *on_ask* answers where a call needs a person's approval; it has to be given if a tool may need one.
        """
        self._agent = agent
        self._bundle = bundle
        self._telemetry = telemetry
        self._on_ask = on_ask

    async def submit_with_tools(self, messages: Sequence[Message]) -> ChatResponse:
        """Run the turn that *messages* lead up to. Hooks on requests are called, those on turns are not.

        Raises:
            AgentError: The run did not come to an answer.
        """
        from graphrt.registry import resolve

        agent, bundle, run_id = self._agent, self._bundle, new_run_id()
        timer, prompt = Timer(bundle.config.timeout_seconds), None
        try:
            with anyio.move_on_after(timer.seconds):
                prompt = await prompt_of(agent, bundle.config, Session(run_id, list(messages)))
            if timer.left() <= 0:
                raise out_of_time(bundle.config)
            registries = bundle.to_registry_set(agent)
            result = await run_resolved(
                resolve(registries, agent.name),
                without_dangling(messages),
                scope=RunScope(
                    bundle.config,
                    registries,
                    telemetry=self._telemetry,
                    on_ask=self._on_ask,
                    hooks=bundle.hook_executor,
                ),
                run_id=run_id,
                timeout=timer.left(),
                system_prompt=prompt or "",
            )
            return outcome_of(result, bundle.config)
        except AgentError:
            raise
        except Exception as error:
            raise AgentError.wrap(error) from error
