from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from graphrt.errors import ConfigError, EnvBuildError
from graphrt.plugins import (
    ExecutionEnv,
    HookBridgePlugin,
    LoopActionHandlersPlugin,
    MaxRoundsPlugin,
    MergeStrategy,
    Phase,
    PluginDescriptor,
    PluginRegistrar,
    StateKey,
)
from graphrt.tools import function_tool
from tests.plugins.runs import Made


@function_tool
def look() -> str:
    return "seen"


async def handler(ctx: Any, payload: Any) -> None: ...


def hook(ctx: Any) -> None: ...


def same(request: Any) -> Any:
    return request


def test_each_kind_of_registration_lands_in_its_field() -> None:
    """AC-W17"""
    key = StateKey("count", 0)

    def register(registrar: PluginRegistrar) -> None:
        registrar.phase_hook(Phase.STEP_START, hook)
        registrar.tool_gate(hook)
        registrar.scheduled_action("act", Phase.STEP_END, handler)
        registrar.effect("tell", handler)
        registrar.request_transform(same)
        registrar.state_key(key)
        registrar.tool(look)

    plugin = Made("mine", register)
    env = ExecutionEnv.from_plugins([plugin])
    assert [(each.plugin_id, each.hook) for each in env.phase_hooks[Phase.STEP_START]] == [("mine", hook)]
    assert [(each.plugin_id, each.hook) for each in env.phase_hooks[Phase.TOOL_GATE]] == [("mine", hook)]
    assert env.scheduled_action_handlers["act"].handler is handler
    assert env.scheduled_action_handlers["act"].phase is Phase.STEP_END
    assert env.effect_handlers["tell"].handler is handler
    assert [(each.plugin_id, each.transform) for each in env.request_transforms] == [("mine", same)]
    assert env.key_registrations == [key]
    assert env.tools == {"look": look}
    assert env.tool_owner("look") == "mine"
    assert env.plugins == [plugin]
    assert vars(env).keys() - {"_owners"} == {
        "phase_hooks",
        "scheduled_action_handlers",
        "effect_handlers",
        "request_transforms",
        "key_registrations",
        "tools",
        "plugins",
    }


def test_environment_is_made_anew_each_time() -> None:
    """W-035"""
    registered: list[str] = []
    plugin = Made("mine", lambda registrar: registered.append("once"))
    one, other = ExecutionEnv.from_plugins([plugin]), ExecutionEnv.from_plugins([plugin])
    assert registered == ["once", "once"]
    assert one.tools is not other.tools
    assert one.phase_hooks is not other.phase_hooks


@pytest.mark.parametrize(
    "register",
    [
        lambda registrar: registrar.scheduled_action("x", Phase.STEP_END, handler),
        lambda registrar: registrar.effect("x", handler),
        lambda registrar: registrar.tool(look),
    ],
    ids=["action", "effect", "tool"],
)
def test_same_thing_from_two_plugins_is_an_error_that_names_both(register: Callable[[PluginRegistrar], object]) -> None:
    """W-040"""
    with pytest.raises(EnvBuildError, match="comes from plugin 'p1' and again from 'p2'"):
        ExecutionEnv.from_plugins([Made("p1", register), Made("p2", register)])


def test_action_and_effect_may_have_one_key() -> None:
    def register(registrar: PluginRegistrar) -> None:
        registrar.scheduled_action("x", Phase.STEP_END, handler)
        registrar.effect("x", handler)

    env = ExecutionEnv.from_plugins([Made("p", register)])
    assert env.scheduled_action_handlers.keys() == env.effect_handlers.keys() == {"x"}


def test_plugins_share_a_state_key_by_declaring_the_same() -> None:
    key = StateKey("count", 0)
    plugins = [Made(id, lambda registrar: registrar.state_key(key)) for id in ("p1", "p2")]
    assert ExecutionEnv.from_plugins(plugins).key_registrations == [key]
    other = Made("p3", lambda registrar: registrar.state_key(StateKey("count", 0, MergeStrategy.COMMUTATIVE)))
    with pytest.raises(EnvBuildError, match="'count' is declared by plugin 'p1' and, differently, by 'p3'"):
        ExecutionEnv.from_plugins([*plugins, other])


@pytest.mark.parametrize(
    ("register", "complaint"),
    [
        (lambda registrar: registrar.phase_hook("lunch", hook), "names phase 'lunch'"),
        (lambda registrar: registrar.phase_hook(Phase.STEP_END, 3), "registers 3, which cannot be called"),
        (lambda registrar: registrar.effect("", handler), "registers effect ''"),
        (lambda registrar: registrar.state_key(StateKey("runtime.mine")), "a name of the runtime's"),
        (lambda registrar: registrar.state_key("count"), "no StateKey"),
        (lambda registrar: 1 / 0, "failed to register: ZeroDivisionError"),
    ],
)
def test_bad_registration_names_the_plugin(register: Callable[[PluginRegistrar], object], complaint: str) -> None:
    with pytest.raises(EnvBuildError, match="plugin 'bad'") as caught:
        ExecutionEnv.from_plugins([Made("bad", register)])
    assert complaint in str(caught.value)


def test_plugin_is_listed_once() -> None:
    with pytest.raises(EnvBuildError, match="plugin 'p' is listed twice"):
        ExecutionEnv.from_plugins([Made("p"), Made("p")])


def test_nothing_is_registered_later() -> None:
    kept: list[PluginRegistrar] = []
    ExecutionEnv.from_plugins([Made("p", kept.append)])
    with pytest.raises(EnvBuildError, match="after its register"):
        kept[0].phase_hook(Phase.STEP_END, hook)


def test_filter_leaves_out_tools_but_not_those_of_built_ins() -> None:
    """X-08"""

    class BuiltIn(Made):
        always_active: ClassVar[bool] = True

    def tool(id: str) -> Callable[[PluginRegistrar], object]:
        return lambda registrar: registrar.tool(function_tool(lambda: "x", id=id, description=id))

    env = ExecutionEnv.from_plugins([Made("p1", tool("a")), Made("p2", tool("b")), BuiltIn("own", tool("c"))])
    assert set(env.active_tools(frozenset({"p1"}))) == {"a", "c"}
    assert set(env.active_tools()) == set(env.tools) == {"a", "b", "c"}


def test_round_limit_is_the_smallest() -> None:
    class Other(MaxRoundsPlugin):
        @property
        def descriptor(self) -> PluginDescriptor:
            return PluginDescriptor("other")

    assert ExecutionEnv.from_plugins([LoopActionHandlersPlugin()]).round_limit is None
    assert ExecutionEnv.from_plugins([MaxRoundsPlugin(5), Other(3)]).round_limit == 3


@pytest.mark.parametrize("limit", [0, -1, True, 2.5, None])
def test_limit_on_rounds_is_a_number_from_one(limit: Any) -> None:
    with pytest.raises(ConfigError, match="max_rounds"):
        MaxRoundsPlugin(limit)


def test_built_ins_have_their_names() -> None:
    ids = [each.descriptor.id for each in (LoopActionHandlersPlugin(), MaxRoundsPlugin(1), HookBridgePlugin(None))]  # type: ignore[arg-type]  # not called
    assert ids == ["loop_actions", "max_rounds", "hook_bridge"]


@pytest.mark.parametrize("id", ["", None])
def test_plugin_needs_an_id(id: Any) -> None:
    with pytest.raises(ConfigError, match="no name"):
        PluginDescriptor(id)
