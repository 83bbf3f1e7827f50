from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from graphrt.errors import ConfigError
from graphrt.plugins import ConfigSchema


class Limits(BaseModel):
    model_config = ConfigDict(extra="forbid")

    most: int = 3


RAW = {"type": "object", "properties": {"most": {"type": "integer"}}, "required": ["most"]}


def test_section_of_a_model_is_given_as_the_model() -> None:
    schema = ConfigSchema("limits", Limits)
    assert schema.validate({"most": 5}) == Limits(most=5)
    assert schema.json_schema == Limits.model_json_schema()


def test_section_of_a_raw_schema_is_given_as_it_is() -> None:
    """D-26"""
    schema = ConfigSchema("limits", schema=RAW)
    value = {"most": 5}
    assert schema.validate(value) is value
    assert schema.json_schema == RAW
    assert schema.json_schema is not RAW


@pytest.mark.parametrize("schema", [ConfigSchema("limits", Limits), ConfigSchema("limits", schema=RAW)])
@pytest.mark.parametrize("value", [{"most": "many"}, {"most": None}])
def test_complaint_names_the_field(schema: ConfigSchema, value: Any) -> None:
    """AC-W09, AC-W29"""
    with pytest.raises(ValueError, match="most: "):
        schema.validate(value)


def test_complaint_names_what_is_missing_or_unknown() -> None:
    with pytest.raises(ValueError, match="'most' is a required property"):
        ConfigSchema("limits", schema=RAW).validate({})
    with pytest.raises(ValueError, match="least: not a field of this section"):
        ConfigSchema("limits", Limits).validate({"least": 1})
    with pytest.raises(ValueError, match="valid dictionary or instance of Limits"):
        ConfigSchema("limits", Limits).validate(3)


@pytest.mark.parametrize("bad", [{"type": 3}, {"properties": {1, 2}}, {"type": "objekt"}], ids=str)
def test_schema_that_is_none_is_an_error_with_and_without_a_section(bad: Any) -> None:
    """AC-W29"""
    schema = ConfigSchema("limits", schema=bad)
    with pytest.raises(ValueError, match="the schema of section 'limits' is no JSON Schema"):
        schema.check()
    with pytest.raises(ValueError, match="the schema of section 'limits' is no JSON Schema"):
        schema.validate({})


def test_reference_that_leads_nowhere_is_an_error_of_the_schema() -> None:
    schema = ConfigSchema("limits", schema={"$ref": "https://example.invalid/schema.json"})
    with pytest.raises(ValueError, match="the schema of section 'limits' cannot be used"):
        schema.validate({})


@pytest.mark.parametrize("options", [{}, {"model": Limits, "schema": RAW}, {"model": dict}], ids=str)
def test_section_is_declared_by_one_of_model_and_schema(options: Any) -> None:
    with pytest.raises(ConfigError, match="section 'limits'"):
        ConfigSchema("limits", **options)


def test_long_complaints_are_cut() -> None:
    schema = ConfigSchema("names", schema={"type": "array", "items": {"type": "integer"}})
    with pytest.raises(ValueError, match="and 15 more") as caught:
        schema.validate(["x" * 1000] * 25)
    assert len(str(caught.value)) < 4000
