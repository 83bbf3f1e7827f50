"""Names of spans and attributes, in one place.

The `gen_ai.*` names are those of the OpenTelemetry conventions for generative AI, which are young and still
change their names; what they do not cover is under `graphrt.*`.
"""

from __future__ import annotations

from typing import Final

CONVENTION_VERSION: Final = "0.1.0"
"""Release of the GenAI conventions that the names follow; recorded on the instrumentation scope."""
CONVENTION_KEY: Final = "graphrt.gen_ai.conventions"
"""Attribute of the instrumentation scope that holds the version."""
SCOPE_NAME: Final = "graphrt"
"""Name of the instrumentation scope."""

# ---------------------------------------------------------------- graphrt's own

KIND: Final = "graphrt.kind"
"""On every span: one of the kinds below."""

KIND_RUN: Final = "run"
KIND_TURN: Final = "turn"
KIND_ROUND: Final = "round"
KIND_NODE: Final = "node"
KIND_INFERENCE: Final = "inference"
KIND_ATTEMPT: Final = "attempt"
KIND_TOOL: Final = "tool"
KIND_HOOK: Final = "hook"
KIND_PLAN: Final = "plan"
KIND_PLAN_STEP: Final = "plan_step"

RUN_ID: Final = "graphrt.run.id"
RUN_STATUS: Final = "graphrt.run.status"
"""How a run ended: succeeded, failed, stopped, cancelled, timed_out or waiting."""
NODE_ID: Final = "graphrt.node.id"
SCOPE: Final = "graphrt.scope"
"""Readable path of a step's scope, such as `outline[3]/section`; empty at the root."""
ROUND: Final = "graphrt.round"
"""Round of the innermost cycle, from 1; 1 outside cycles."""
ATTEMPT: Final = "graphrt.attempt"
"""Number of a try, from 1."""
SESSION_ID: Final = "graphrt.session.id"
AGENT_ID: Final = "graphrt.agent.id"
TURN_INDEX: Final = "graphrt.turn.index"
"""Turns the session had finished before this one."""
HOOK_EVENT: Final = "graphrt.hook.event"
PLUGIN_ID: Final = "graphrt.plugin.id"
PLAN_ID: Final = "graphrt.plan.id"
PLAN_STEP_INDEX: Final = "graphrt.plan.step.index"
"""A step's place in its plan, from 0."""
PLAN_STEP_STATE: Final = "graphrt.plan.step.state"
QUESTION_ID: Final = "graphrt.question.id"
"""On the event `graphrt.waiting`: what an answer names."""

EVENT_WAITING: Final = "graphrt.waiting"
"""Span event: the step waits for a person from here on."""
EVENT_FALLBACK: Final = "graphrt.fallback"
"""Span event: the node's next fallback is tried."""

INPUT: Final = "graphrt.input"
OUTPUT: Final = "graphrt.output"
QUESTION: Final = "graphrt.question"
GOAL: Final = "graphrt.plan.goal"
TRUNCATED: Final = "graphrt.truncated"
"""Names of the attributes of this span whose text was cut off at `CONTENT_LIMIT`."""

CONTENT_LIMIT: Final = 32_768
"""Characters of content that one attribute holds at most."""

# ---------------------------------------------------------------- conventions

OPERATION: Final = "gen_ai.operation.name"
OPERATION_WORKFLOW: Final = "invoke_workflow"
OPERATION_AGENT: Final = "invoke_agent"
OPERATION_CHAT: Final = "chat"
OPERATION_TOOL: Final = "execute_tool"

AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
ERROR_TYPE: Final = "error.type"

INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"

EXCEPTION: Final = "exception"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACKTRACE: Final = "exception.stacktrace"

OPENINFERENCE_KIND: Final = "openinference.span.kind"
OPENINFERENCE_CHAIN: Final = "CHAIN"
OPENINFERENCE_INPUT: Final = "input.value"
OPENINFERENCE_OUTPUT: Final = "output.value"

CONTENT: Final = frozenset(
    {
        INPUT,
        OUTPUT,
        QUESTION,
        GOAL,
        INPUT_MESSAGES,
        OUTPUT_MESSAGES,
        SYSTEM_INSTRUCTIONS,
        TOOL_ARGUMENTS,
        TOOL_RESULT,
        TOOL_DEFINITIONS,
        OPENINFERENCE_INPUT,
        OPENINFERENCE_OUTPUT,
    }
)
"""Attributes that hold what people and models wrote: recorded only with `capture_content=True`."""
