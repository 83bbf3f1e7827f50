from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from graphrt.config import AgentConfig, CompactConfig, ContextPolicy, RetryConfig
from graphrt.errors import ConfigError, LlmError, LlmErrorKind


def test_defaults_are_those_of_the_contract() -> None:
    """AC-M01: defaults of the agent's settings."""
    config = AgentConfig()
    assert config.model == "gpt-4o-mini"
    assert config.temperature == 0.7
    assert config.max_tokens is None
    assert config.max_iterations == 10
    assert config.timeout_seconds == 300
    assert config.system_prompt
    assert config.max_turns is None
    assert config.session_ttl is None
    assert config.compact_config is None
    assert (config.tool_execution, config.max_delegate_depth) == ("parallel", 3)


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 2.5},
        {"temperature": -0.1},
        {"max_iterations": 0},
        {"max_rounds": None},
        {"timeout_seconds": 0},
        {"max_tokens": 0},
        {"tool_execution": "both"},
        {"session_ttl": timedelta(seconds=-1)},
        {"temprature": 0.5},
    ],
)
def test_setting_that_makes_no_sense_is_refused(settings: dict[str, Any]) -> None:
    """AC-M01: what is out of range, and what is misspelt."""
    with pytest.raises(ValidationError):
        AgentConfig(**settings)


@pytest.mark.parametrize("name", ["max_rounds", "max_iterations", "max_tool_turns"])
def test_round_limit_has_three_names(name: str) -> None:
    """AC-A35: the aliases are read and written; max_turns is another limit."""
    values: dict[str, Any] = {name: 4}
    config = AgentConfig(**values)
    assert (config.max_rounds, config.max_iterations, config.max_tool_turns) == (4, 4, 4)
    assert config.max_turns is None
    assert config == AgentConfig(max_rounds=4)
    assert AgentConfig.model_validate(config.model_dump()) == config


def test_two_names_with_one_value_agree() -> None:
    assert AgentConfig(max_rounds=3, max_iterations=3, max_tool_turns=3).max_rounds == 3


def test_two_names_with_different_values_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"max_iterations=3, max_tool_turns=4"):
        AgentConfig(max_iterations=3, max_tool_turns=4)
    with pytest.raises(ConfigError, match=r"max_rounds=10, max_iterations=3"):
        AgentConfig.model_validate({"max_rounds": 10, "max_iterations": 3})


def test_suffix_goes_after_the_system_prompt() -> None:
    config = AgentConfig(system_prompt="Be brief.", model="m")
    longer = config.with_system_prompt_suffix("Speak French.")
    assert longer.system_prompt == "Be brief.\n\nSpeak French."
    assert longer.model == "m"
    assert config.system_prompt == "Be brief."


def test_limit_replies_name_the_limit() -> None:
    assert "max_rounds" in AgentConfig().limit_reply
    assert "timeout_seconds" in AgentConfig().timeout_reply


def test_compaction_and_context_defaults() -> None:
    compact, context = CompactConfig(), ContextPolicy()
    assert (compact.threshold_tokens, compact.keep_recent, compact.min_savings_ratio) == (None, 2, 0.3)
    assert compact.summary_prompt
    assert (context.max_context_tokens, context.max_output_tokens) == (200_000, 16_384)
    assert (context.min_recent_messages, context.enable_prompt_cache, context.estimator) == (10, True, None)


def test_context_policy_can_be_tiny() -> None:
    assert ContextPolicy(max_context_tokens=50, estimator=lambda message: 1).max_context_tokens == 50


def test_retry_defaults() -> None:
    config = RetryConfig()
    assert (config.max_retries, config.fallback_models) == (2, [])
    assert (config.backoff_base, config.overloaded_backoff_base, config.backoff_max) == (0.5, 2.0, 8.0)


@pytest.mark.parametrize(
    "settings", [{"max_retries": -1}, {"backoff_base": -1}, {"backoff_max": float("inf")}, {"max_retry": 1}]
)
def test_retry_setting_that_makes_no_sense_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        RetryConfig(**settings)


def test_policy_has_one_attempt_more_than_retries() -> None:
    assert RetryConfig(max_retries=0).to_policy().attempts == 1
    assert RetryConfig().to_policy().attempts == 3


def test_overloaded_provider_gets_more_time() -> None:
    policy = RetryConfig().to_policy()
    overloaded, other = LlmError("busy", LlmErrorKind.OVERLOADED), LlmError("oops", LlmErrorKind.PROVIDER)
    assert [policy.wait_before(n, other) for n in (1, 2, 3)] == [0.5, 1.0, 2.0]
    assert [policy.wait_before(n, overloaded) for n in (1, 2, 3, 4)] == [2.0, 4.0, 8.0, 8.0]
    assert policy.wait_before(1, LlmError("slow", LlmErrorKind.RATE_LIMITED, retry_after=20)) == 20


def test_base_of_zero_disables_every_pause() -> None:
    policy = RetryConfig(backoff_base=0).to_policy()
    assert policy.wait_before(1, LlmError("busy", LlmErrorKind.OVERLOADED, retry_after=20)) == 0


def test_policy_retries_recoverable_model_errors_only() -> None:
    policy = RetryConfig().to_policy()
    assert policy.retries(LlmError("busy", LlmErrorKind.OVERLOADED))
    assert not policy.retries(LlmError("no key", LlmErrorKind.UNAUTHORIZED))
    assert not policy.retries(ValueError("odd"))
    assert RetryConfig().to_policy(ValueError).retries(ValueError("odd"))


def test_equal_settings_give_equal_policies() -> None:
    assert RetryConfig().to_policy() == RetryConfig().to_policy()
