"""Public names: documented, importable, light to load (AC-C23, B-129, B-131)."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import graphrt
from graphrt import END, START, GraphError, Workflow

ROOT = Path(__file__).parents[2]
PUBLIC = [
    "graphrt",
    "graphrt.agent",
    "graphrt.config",
    "graphrt.errors",
    "graphrt.graph",
    "graphrt.hooks",
    "graphrt.ledger",
    "graphrt.llm",
    "graphrt.memory",
    "graphrt.messages",
    "graphrt.nodes",
    "graphrt.platform",
    "graphrt.plugins",
    "graphrt.policies",
    "graphrt.registry",
    "graphrt.telemetry",
    "graphrt.testing",
    "graphrt.tools",
]
"""The public packages and modules."""

NAMED = {
    "graphrt": "Workflow START END CompiledGraph RunContext RunResult RunEvent RetryPolicy RateLimit Budget Update "
    "Reduce Failure Ask AgentNode Agent SimpleAgent AgentBuilder AgentConfig AgentSession Session AgentRuntime "
    "AgentRuntimeBuilder AgentSpec ModelSpec Plan Step SessionTaskAgent JsonPlanParser LLMProvider OpenAIProvider "
    "Message ToolRegistry function_tool HookEvent HookExecutor Plugin configure_tracing retrying with_fallback",
    "graphrt.errors": "GraphrtError LlmError LlmErrorKind ToolError MemoryStoreError AgentError AgentErrorKind "
    "AgentLlmError AgentToolError AgentMemoryError PlanParseError HookBlockedError LimitExceededError ConfigError "
    "OtherAgentError ResolveError AgentNotFoundError ModelNotFoundError ProviderNotFoundError PluginNotFoundError "
    "InvalidPluginConfigError ToolIdConflictError RemoteAgentNotDirectlyRunnableError EnvBuildError BuildError "
    "GraphError InvalidTransitionError StateError RunControlError",
    "graphrt.messages": "Role Message ToolCall TokenUsage LLMResponse ChatResponse",
    "graphrt.config": "AgentConfig CompactConfig ContextPolicy RetryConfig",
    "graphrt.llm": "LLMProvider OpenAIProvider ScriptedProvider InferenceRequest LLMDelta LLMExecutor "
    "ProviderExecutor RetryingExecutor retrying with_fallback CostTracker LlmCycle",
    "graphrt.hooks": "HookEvent HookContext HookResult HookExecutor",
    "graphrt.tools": "Tool ToolDescriptor ToolDefinition ToolContext ToolResult function_tool ToolRegistry "
    "PermissionChecker SequentialToolExecutor ParallelToolExecutor RetrieveTool AgentTool",
    "graphrt.memory": "MemoryStore InMemoryStore MemoryRetriever KnowledgeStore ConversationMemory SessionMemory",
    "graphrt.agent": "GatewayMessage SystemPromptBuilder Agent SimpleAgent RuntimeBundle AgentBuilder Session "
    "AgentSession Plan Step StepState StepStatus PlanParser JsonPlanParser TaskAgent SessionTaskAgent FailurePolicy "
    "AgentRuntime RunRequest RunResult",
    "graphrt.registry": "AgentSpec ModelSpec RemoteEndpoint AgentSpecRegistry ModelRegistry ProviderRegistry "
    "PluginSource MapAgentSpecRegistry MapModelRegistry MapProviderRegistry MapPluginSource RegistrySet resolve "
    "ResolvedAgent AgentRuntimeBuilder",
    "graphrt.plugins": "GateDecision Plugin PluginDescriptor PluginRegistrar ConfigSchema Phase PhaseContext StateKey "
    "MergeStrategy StateStore Snapshot StateCommand ExecutionEnv TaggedPhaseHook TaggedRequestTransform PhaseRuntime "
    "LoopActionHandlersPlugin MaxRoundsPlugin CompactionPlugin ContextTransformPlugin HookBridgePlugin",
    "graphrt.ledger": "AgentRun AgentRunStatus AgentRunEvent RunEventPage RunPage RunCreateRequest RunCreateResult "
    "RunAppendResultRequest AuthorizationSnapshot RunLedgerStore InMemoryRunLedgerStore SqlRunLedgerStore "
    "SqliteRunLedgerStore PostgresRunLedgerStore RunControl RunControlProxy CallerIdentity SharedLimit ExecutionQueue "
    "RuntimeRegistry",
    "graphrt.platform": "EventEnvelope AgentBinding EventRouter AgentRunner AgentRunContext AgentRunResult ResultType "
    "AgentRunOrchestrator RunJournal TranscriptStore ArtifactStore StateScopeStore GraphAgentRunner",
    "graphrt.telemetry": "Telemetry configure_tracing",
    "graphrt.testing": "ScriptedProvider FakeClock fake_time EventRecorder SpanRecorder fail delay cut",
    "graphrt.graph": "Node NodeKind NodeState Edge Workflow CompiledGraph GraphScheduler RunContext RunEvent "
    "RunResult RetryPolicy Termination TerminationKind",
    "graphrt.nodes": "FunctionNode InferenceNode FallbackNode ToolNode AgentNode PlanStepNode DelegateNode RouterNode "
    "JoinNode GraphNode Ask compile_agent compile_plan",
}
"""Names of the contract, by where they are imported from."""


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in NAMED.items() for name in names.split()]
)
def test_name_of_the_contract_is_importable_from_where_it_belongs(module: str, name: str) -> None:
    """AC-C23."""
    assert getattr(importlib.import_module(module), name) is not None


def public_names(module: ModuleType) -> list[str]:
    """What a module offers."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    return [name for name, one in vars(module).items() if not name.startswith("_") and one.__class__ is type]


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_has_a_docstring(module: str) -> None:
    """AC-C23."""
    package = importlib.import_module(module)
    assert package.__doc__
    bare = [
        name
        for name in public_names(package)
        if (inspect.isclass(one := getattr(package, name)) or inspect.isroutine(one)) and not inspect.getdoc(one)
    ]
    assert bare == []


def own_methods() -> Iterator[tuple[str, Any]]:
    """Public methods and properties that classes of graphrt define themselves."""
    for module in PUBLIC:
        package = importlib.import_module(module)
        for name in public_names(package):
            cls = getattr(package, name)
            if inspect.isclass(cls) and cls.__module__.startswith("graphrt"):
                for attribute, one in vars(cls).items():
                    fn = getattr(one, "__func__", one)
                    described = inspect.isfunction(fn) or isinstance(one, property)
                    if described and not attribute.startswith("_"):
                        yield f"{cls.__module__}.{cls.__qualname__}.{attribute}", one


def test_every_public_method_has_a_docstring() -> None:
    """AC-C23."""
    assert sorted({name for name, one in own_methods() if not inspect.getdoc(getattr(one, "__func__", one))}) == []


def test_every_module_has_a_docstring() -> None:
    bare = [
        module.name
        for module in pkgutil.walk_packages(graphrt.__path__, "graphrt.")
        if not module.name.endswith("__main__")
        and ".migrations." not in module.name  # run by Alembic, and by nobody else
        and not importlib.import_module(module.name).__doc__
    ]
    assert bare == []


def test_first_days_names_are_few() -> None:
    """What a first day needs: the 42 names of the contract, and the errors people catch."""
    assert len(graphrt.__all__) <= 55


def test_import_of_the_engine_runs_a_graph_without_loading_what_it_does_not_need() -> None:
    """B-131."""
    code = (
        "import sys\n"
        "from graphrt import END, START, Workflow\n"
        "w = Workflow('g')\n"
        "@w.node\n"
        "async def f(x: int) -> int: return x + 1\n"
        "w.chain(START, f, END)\n"
        "assert w.run_sync(1).output == 2\n"
        "heavy = {'openai', 'httpx', 'pydantic', 'opentelemetry', 'networkx', 'rich', 'IPython', 'tenacity', "
        "'jsonschema', 'sqlalchemy', 'trio'}\n"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"


# --- B-129: postponed annotations --------------------------------------------------------------------------


def test_types_local_to_a_function_are_found() -> None:
    """B-129: this module postpones its annotations, and the types are local."""
    from pydantic import BaseModel

    class Local(BaseModel):
        n: int = 0

    workflow = Workflow("g", input=Local)

    @workflow.node
    async def first(x: Local) -> list[Local]:
        return [x, Local(n=2)]

    @workflow.node
    async def each(one: Local) -> int:
        return one.n

    workflow.edge(START, first)
    workflow.map(first, each)
    workflow.gather(each, END)
    assert workflow.run_sync(Local(n=1)).output == [1, 2]


def test_types_local_to_a_function_are_compared() -> None:
    """B-129: found, and not passed over."""

    class Apple: ...

    class Pear: ...

    workflow = Workflow("g")

    @workflow.node
    async def first(x: int) -> Apple:
        return Apple()

    @workflow.node
    async def second(x: Pear) -> int:
        return 1

    workflow.chain(START, first, second, END)
    with pytest.raises(GraphError, match=r"brings .*Apple, and parameter 'x' takes .*Pear"):
        workflow.compile()


def test_type_that_is_found_nowhere_is_named_with_what_to_do() -> None:
    """B-129: the error says how to help."""

    async def node(x: int, ctx: Contxt) -> int:  # type: ignore[name-defined]  # noqa: F821 - what is tested
        return x

    workflow = Workflow("g")
    workflow.add(node)
    workflow.chain(START, node, END)
    with pytest.raises(GraphError, match="nobody fills parameter 'ctx'") as caught:
        workflow.compile()
    assert "'Contxt'" in (caught.value.hint or "")


def test_context_is_recognised_although_its_import_is_for_type_checkers_only() -> None:
    code = (
        "from __future__ import annotations\n"
        "from typing import TYPE_CHECKING\n"
        "from graphrt import END, START, Workflow\n"
        "if TYPE_CHECKING:\n"
        "    from graphrt import RunContext\n"
        "w = Workflow('g')\n"
        "@w.node\n"
        "async def f(x: int, ctx: RunContext[None]) -> str: return ctx.step.node\n"
        "w.chain(START, f, END)\n"
        "print(w.run_sync(1).output)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("f\n", "")


def test_nodes_of_a_class_are_methods_of_its_object() -> None:
    """Methods are found with their annotations, bound to their object."""

    class Steps:
        def __init__(self, by: int) -> None:
            self.by = by

        async def add(self, x: int) -> int:
            return x + self.by

        def times(self, x: int) -> int:
            return x * self.by

    steps = Steps(10)
    workflow = Workflow("g")
    workflow.add(steps.add)
    workflow.add(steps.times)
    workflow.chain(START, "add", "times", END)
    assert workflow.run_sync(1).output == 110
