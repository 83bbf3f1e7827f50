"""`Agent`: a role that any number of sessions may play at once."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from graphrt.errors import ConfigError
from graphrt.tools.base import Tool, ToolDescriptor
from graphrt.tools.function import FunctionTool

if TYPE_CHECKING:
    from graphrt.agent.bundle import RuntimeBundle
    from graphrt.tools.base import ToolDefinition

log = logging.getLogger(__name__)

Offered: TypeAlias = "str | ToolDefinition | Tool | Callable[..., Any]"
"""One tool of a white list: its id, what the model is told of it, the tool itself, or a function to make one of."""


class Agent(ABC):
    """A role: its name, what it is told, and which tools it may use. It belongs to no session."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the agent, in spans and messages."""

    @property
    @abstractmethod
    def system_prompt(self) -> str | None:
        """What the model is told before the conversation; None: nothing, and no system message is sent."""

    def tool_definitions(self, bundle: RuntimeBundle) -> list[ToolDefinition]:
        """List the tools the model is offered: all of the bundle's, unless a class says otherwise.

        Read at the start of each turn. What is left out is unknown to the model, and a call of it is answered so; a
        definition that differs from the tool's own is what the model is told.
        """
        return bundle.tool_registry.descriptors()


class SimpleAgent(Agent):
    """An agent of given parts."""

    def __init__(self, name: str, system_prompt: str | None = None, tools: Sequence[Offered] | None = None) -> None:
        """Put an agent together.

        Args:
            name: Its name.
            system_prompt: What the model is told before the conversation; None: nothing.
            tools: The only tools it may use, by id, by definition, or themselves; None: all of the bundle's. A tool
                or function that the bundle lacks is the agent's own. An id that the bundle lacks is passed over.

        Raises:
            ConfigError: The name is empty, or an entry is no tool.
            ToolError: A function cannot be described to a model.
        """
        if not isinstance(name, str) or not name:
            raise ConfigError(f"an agent's name is {name!r}, which is no text", hint="give it a name")
        if system_prompt is not None and not isinstance(system_prompt, str):
            raise ConfigError(
                f"the system prompt of agent {name!r} is {type(system_prompt).__name__}, which is no text",
                hint="give a text or None; a SystemPromptBuilder goes into AgentConfig(system_prompt=...)",
            )
        self._name = name
        self._system_prompt = system_prompt
        self._tools = None if tools is None else _read(name, tools)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r})"

    @property
    def name(self) -> str:
        """Name of the agent."""
        return self._name

    @property
    def system_prompt(self) -> str | None:
        """What the model is told before the conversation."""
        return self._system_prompt

    @property
    def own_tools(self) -> list[Tool]:
        """The tools that were given themselves; those the bundle lacks are added to it for this agent's turns."""
        return [each for each in self._tools or () if isinstance(each, Tool)]

    def tool_definitions(self, bundle: RuntimeBundle) -> list[ToolDefinition]:
        """List the tools of the white list, or all of the bundle's without one."""
        if self._tools is None:
            return super().tool_definitions(bundle)
        found: list[ToolDefinition] = []
        for each in self._tools:
            if isinstance(each, Tool):
                found.append(each.descriptor)
                continue
            tool = bundle.tool_registry.get(each if isinstance(each, str) else each.id)
            if tool is None:
                log.warning("agent %r lists the tool %r, which its bundle lacks", self._name, each)
            else:
                found.append(tool.descriptor if isinstance(each, str) else each)
        return found


def _read(agent: str, tools: object) -> list[str | ToolDescriptor | Tool]:
    """Read a white list.

    Raises:
        ConfigError: It is none.
    """
    if isinstance(tools, (str, bytes, Mapping, ToolDescriptor)) or callable(tools) or not isinstance(tools, Iterable):
        raise ConfigError(
            f"the tools of agent {agent!r} are a sequence, not {type(tools).__name__}",
            hint="give tools=[...], or None for all of the bundle's",
        )
    found: list[str | ToolDescriptor | Tool] = []
    ids: set[str] = set()
    for each in tools:
        if isinstance(each, (str, ToolDescriptor, Tool)):
            entry: str | ToolDescriptor | Tool = each
        elif callable(each):
            entry = FunctionTool(each)
        else:
            raise ConfigError(
                f"agent {agent!r} lists {each!r} among its tools",
                hint="give ids, definitions, tools or functions",
            )
        id = entry if isinstance(entry, str) else entry.id if isinstance(entry, ToolDescriptor) else entry.descriptor.id
        if id in ids:
            raise ConfigError(f"agent {agent!r} lists the tool {id!r} twice", hint="list it once")
        ids.add(id)
        found.append(entry)
    return found
