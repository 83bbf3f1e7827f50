"""A plugin that counts, refuses and reminds: what acts in an agent's rounds, and is no tool.

It counts calls in a key of the run's state, answers in the place of a tool that is not to be called, and adds a message
that the model sees and the conversation does not keep. At the end of the run it tells whoever reads the events.
"""

from __future__ import annotations

import operator

from graphrt import AgentRuntime, AgentRuntimeBuilder, AgentSpec, LLMProvider, ModelSpec
from graphrt.agent import RunRequest
from graphrt.llm import ScriptedProvider
from graphrt.messages import LLMResponse, Message, ToolCall
from graphrt.plugins import (
    ADD_CONTEXT_MESSAGE,
    GateDecision,
    MergeStrategy,
    Phase,
    PhaseContext,
    Plugin,
    PluginDescriptor,
    PluginRegistrar,
    StateCommand,
    StateKey,
)
from graphrt.tools import ToolResult

CALLS = StateKey("watch.calls", 0, MergeStrategy.COMMUTATIVE, operator.add)


class Watch(Plugin):
    """Watch over the calls of tools."""

    @property
    def descriptor(self) -> PluginDescriptor:
        """Who it is."""
        return PluginDescriptor("watch")

    def register(self, registrar: PluginRegistrar) -> None:
        """Say what it brings."""
        registrar.state_key(CALLS)
        registrar.tool_gate(self.gate)
        registrar.phase_hook(Phase.AFTER_TOOL_EXECUTE, self.count)
        registrar.phase_hook(Phase.BEFORE_INFERENCE, self.remind)
        registrar.phase_hook(Phase.RUN_END, self.tell)

    def gate(self, ctx: PhaseContext) -> GateDecision | None:
        """Refuse one tool; the run goes on, and the model reads why. `GateDecision.block` would end the run."""
        assert ctx.tool_call is not None
        if ctx.tool_call.name == "delete":
            return GateDecision.set_result(ToolResult(error_message="nothing is deleted on Mondays"))
        return None

    def count(self, ctx: PhaseContext) -> StateCommand:
        """Count a call: what is written to a commutative key is combined with what is there."""
        return StateCommand().update(CALLS, 1)

    def remind(self, ctx: PhaseContext) -> StateCommand:
        """Say how far it is, in the next request only."""
        return StateCommand().schedule(ADD_CONTEXT_MESSAGE, Message.system(f"Calls so far: {ctx.state[CALLS.name]}"))

    def tell(self, ctx: PhaseContext) -> None:
        """Hand the count on: the state is gone with the run."""
        ctx.run.emit("custom.calls", {"count": ctx.state[CALLS.name]})


async def look(name: str) -> str:
    """Look at a file."""
    return f"{name} is empty"


async def delete(name: str) -> str:
    """Delete a file."""
    raise AssertionError("the gate has let it through")


def build(model: LLMProvider) -> AgentRuntime:
    """Make a runtime with one agent on top of *model*."""
    builder = AgentRuntimeBuilder().with_provider("p", model).with_model(ModelSpec("default", "p", "small"))
    builder.with_tool("look", look).with_tool("delete", delete).with_plugin("watch", Watch())
    return builder.with_agent_spec(AgentSpec("tidy", plugin_ids=["watch"])).build()


def scripted() -> ScriptedProvider:
    """Stand in for a model that looks at two files, and wants to delete one."""
    two = [ToolCall("1", "look", {"name": "a"}), ToolCall("2", "look", {"name": "b"})]
    one = [ToolCall("3", "delete", {"name": "a"})]
    return ScriptedProvider([LLMResponse(tool_calls=two), LLMResponse(tool_calls=one), "Both are still there."])


async def run(model: ScriptedProvider) -> tuple[str, int]:
    """Run the agent; give its answer, and the calls that the plugin has counted."""
    count = -1
    async with build(model).stream(RunRequest("tidy", "Tidy up!")) as stream:
        async for event in stream:
            if event.type == "custom.calls":
                count = event.data["count"]
    return stream.result.output, count


def main() -> tuple[str, int]:
    """Run it once."""
    import anyio

    return anyio.run(run, scripted())
