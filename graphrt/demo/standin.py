"""A stand-in for a language model, so that the demo runs without a key, a server or a network.

It is a provider like any other and works by simple rules on what it is sent: messages, tools, the schema of
the reply. It never touches a file. With a schema for a plan it turns headings into questions; with tools it
searches for the key words of the question, reads around the hits and quotes what it read, with file and line;
with neither it puts the findings it is given in order. Nothing is learned and nothing is canned.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio.lowlevel
from pydantic import BaseModel

from graphrt.demo.documents import key_words
from graphrt.demo.survey import SURVEYED_FILE, SURVEYED_HEADING
from graphrt.errors import LlmError, LlmErrorKind
from graphrt.llm import LLMDelta, LLMProvider
from graphrt.messages import LLMResponse, Message, Role, ToolCall

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from graphrt.llm.provider import Tools

STAND_IN_NAME: Final = "offline stand-in"
"""What the stand-in answers as its model's name."""

_MOST: Final = re.compile(r"\bat most (\d+)\b")
_QUOTED: Final = re.compile(r'"([^"]+)"')
_HIT: Final = re.compile(r"(\S.*?):(\d+): (.*)$")
_READ: Final = re.compile(r"(\S.*), lines \d+ to \d+ of \d+$")
_NUMBERED: Final = re.compile(r"(\d+): (.*)$")
_SECTION: Final = re.compile(r"## (.+)$")
_SOURCE: Final = re.compile(r"\(([^()\s]+):\d+\)$")
_DEFAULT_STEPS: Final = 4
_LINES_READ: Final = 14
_PLACES_READ: Final = 2
_LINES_QUOTED: Final = 4


class OfflineStandIn(LLMProvider):
    """Answers by rules; safe to share, since it keeps nothing between calls."""

    model = STAND_IN_NAME

    async def chat(self, messages: Sequence[Message], tools: Tools = None, **kwargs: Any) -> LLMResponse:
        """Answer by rules; *kwargs* other than ``response_format`` make no difference.

        Raises:
            LlmError: A reply in a form was asked for, and the form is not that of a plan.
        """
        await anyio.lowlevel.checkpoint()
        wanted = kwargs.get("response_format")
        if wanted is not None:
            return _plan_in_form(_last_user_text(messages), _text_of(messages, Role.SYSTEM), wanted)
        if tools:
            return _research(messages, [_Offered.read(tool) for tool in tools])
        return _reply(_write(_last_user_text(messages)))

    async def stream(self, messages: Sequence[Message], tools: Tools = None, **kwargs: Any) -> AsyncIterator[LLMDelta]:
        """Answer as ``chat`` does, word by word."""
        response = await self.chat(messages, tools, **kwargs)
        for word in re.findall(r"\S+\s*|\s+", response.content):
            await anyio.lowlevel.checkpoint()
            yield LLMDelta(text=word)
        yield LLMDelta(response=response)


def _reply(text: str = "", calls: Sequence[ToolCall] = ()) -> LLMResponse:
    return LLMResponse(text, calls, finish_reason="tool_calls" if calls else "stop", model=STAND_IN_NAME)


def _text_of(messages: Sequence[Message], role: Role) -> str:
    return "\n".join(message.content for message in messages if message.role is role)


def _last_user_text(messages: Sequence[Message]) -> str:
    return next((each.content for each in reversed(messages) if each.role is Role.USER), "")


# --- planner: headings to questions ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Topic:
    path: str
    at: int
    """Which heading of its file, from 0."""
    level: int
    text: str
    above: tuple[str, ...]
    """The headings that it stands under."""


def _plan_in_form(survey: str, instructions: str, wanted: Any) -> LLMResponse:
    """Make a plan and give it in the form of *wanted*, a pydantic model or an OpenAI response format."""
    is_model = isinstance(wanted, type) and issubclass(wanted, BaseModel)
    schema = wanted.model_json_schema() if is_model else _field(wanted, "json_schema", "schema")
    steps = _field(schema, "properties", "steps")
    if steps is None:
        raise LlmError(
            "the offline stand-in can fill in plans only, and the form asked for has no steps",
            LlmErrorKind.INVALID_REQUEST,
            hint="use a model: OPENAI_BASE_URL, OPENAI_API_KEY, --model",
        )
    most = _MOST.search(f"{survey}\n{instructions}")
    content = json.dumps({"steps": _plan(survey, int(most[1]) if most else _DEFAULT_STEPS)}, ensure_ascii=False)
    parsed = wanted.model_validate_json(content) if is_model else None
    return _reply(content).model_copy(update={"parsed": parsed})


def _field(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _plan(survey: str, most: int) -> list[dict[str, Any]]:
    """Ask about the headings that fit the goal best, file by file in turn; about a part after its whole."""
    goal = set(key_words(survey.partition("\n")[0]))
    by_file: dict[str, list[_Topic]] = {}
    for topic in _topics(survey):
        by_file.setdefault(topic.path, []).append(topic)
    queues = [sorted(topics, key=lambda each: _rank(each, goal, len(topics))) for topics in by_file.values()]
    chosen: list[_Topic] = []
    while len(chosen) < most and any(queues):
        for queue in filter(None, queues):
            chosen += _with_a_part(queue)
    del chosen[most:]
    order = list(by_file)
    chosen.sort(key=lambda each: (order.index(each.path), each.at))
    ids = {(topic.path, topic.text): f"s{at}" for at, topic in enumerate(chosen, start=1)}
    return [
        {
            "id": f"s{at}",
            "question": f'What does {topic.path} say about "{topic.text}"?',
            "depends_on": [ids[topic.path, above] for above in topic.above[-1:] if (topic.path, above) in ids],
        }
        for at, topic in enumerate(chosen, start=1)
    ]


def _with_a_part(queue: list[_Topic]) -> list[_Topic]:
    """Take the first topic of *queue*, and the first of those that stand under it."""
    whole = queue.pop(0)
    part = next((each for each in queue if each.above[-1:] == (whole.text,)), None)
    if part is None or whole.level == 1:
        return [whole]
    queue.remove(part)
    return [whole, part]


def _rank(topic: _Topic, goal: set[str], among: int) -> tuple[bool, bool, int, int]:
    """Put headings with words of the goal first, and a title after what it stands over."""
    is_title = topic.level == 1 and among > 1
    return not goal & set(key_words(topic.text)), is_title, topic.level, topic.at


def _topics(survey: str) -> Iterator[_Topic]:
    """Read the headings of a survey; one text in a file counts once."""
    path, above, seen = "", list[tuple[int, str]](), set[str]()
    for line in survey.splitlines():
        if file := SURVEYED_FILE.match(line):
            path, above, seen = file[1], [], set()
        elif path and (found := SURVEYED_HEADING.match(line)):
            level, text = len(found[1]), found[2].replace('"', "'")
            above = [each for each in above if each[0] < level]
            if text not in seen and key_words(text):
                yield _Topic(path, len(seen), level, text, tuple(each for _, each in above))
                seen.add(text)
            above.append((level, text))


# --- researcher: search, read, quote ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Offered:
    """A tool, told by what it takes."""

    name: str
    parameters: frozenset[str]

    @classmethod
    def read(cls, tool: Any) -> _Offered:
        function: Mapping[str, Any] | None = _field(tool, "function")
        name = tool.name if function is None else function["name"]
        schema = tool.parameters if function is None else function.get("parameters", {})
        return cls(name, frozenset(schema.get("properties", {})))


def _research(messages: Sequence[Message], tools: list[_Offered]) -> LLMResponse:
    """Take the next step: search, search with fewer words, read around the best hits, answer."""
    question = _question(_last_user_text(messages))
    since = max((at for at, each in enumerate(messages) if each.role is Role.USER), default=0)
    done = messages[since + 1 :]
    results = [each.content for each in done if each.role is Role.TOOL]
    searcher = next((tool.name for tool in tools if "query" in tool.parameters), None)
    reader = next((tool.name for tool in tools if {"path", "first_line", "last_line"} <= tool.parameters), None)
    quotes = [quote for result in results for quote in _quotes(result, question)]
    if quotes or any(_READ.match(result.partition("\n")[0]) for result in results):
        return _reply(_answer(quotes, question))
    hits = [found for result in results for line in result.splitlines() if (found := _HIT.match(line))]
    if hits and reader is not None:
        return _calls(reader, len(done), [_around(hit) for hit in _best(hits, question)])
    queries = _queries(question)
    if searcher is not None and len(results) < len(queries):
        return _calls(searcher, len(done), [{"query": queries[len(results)]}])
    return _reply(_answer([], question))


def _question(text: str) -> str:
    """Find the line that begins with "Question:", or take the first."""
    lines = text.strip().splitlines() or [""]
    asked = next((line for line in lines if line.startswith("Question:")), lines[0])
    return asked.removeprefix("Question:").strip()


def _queries(question: str) -> list[str]:
    """Give what to search for, in turn: what is quoted or all key words, then the longest word alone."""
    quoted = _QUOTED.findall(question)
    words = key_words(" ".join(quoted) or question)
    queries = [" ".join(quoted) or " ".join(words), max(words, key=len, default="")]
    return [query for query in dict.fromkeys(queries) if query]


def _calls(tool: str, at: int, arguments: Sequence[dict[str, Any]]) -> LLMResponse:
    return _reply(calls=[ToolCall(f"call_{at}_{index}", tool, each) for index, each in enumerate(arguments)])


def _best(hits: list[re.Match[str]], question: str) -> list[re.Match[str]]:
    """Choose the hits to read around: in a file that the question names and headings first, places apart."""
    chosen: list[re.Match[str]] = []
    for hit in sorted(hits, key=lambda each: (each[1] not in question, not each[3].startswith("#"))):
        apart = all(hit[1] != other[1] or abs(int(hit[2]) - int(other[2])) > _LINES_READ for other in chosen)
        if apart and (not chosen or hit[1] in question or chosen[0][1] not in question):
            chosen.append(hit)
    return chosen[:_PLACES_READ]


def _around(hit: re.Match[str]) -> dict[str, Any]:
    line = int(hit[2])
    first = line if hit[3].startswith("#") else max(1, line - 1)
    return {"path": hit[1], "first_line": first, "last_line": line + _LINES_READ}


def _quotes(result: str, question: str) -> list[str]:
    """Quote what was read up to the next heading: lines with key words first in choice, then in order."""
    lines = result.splitlines()
    file = _READ.match(lines[0]) if lines else None
    if file is None:
        return []
    passage: list[tuple[int, str]] = []
    for found in filter(None, map(_NUMBERED.match, lines[1:])):
        text = found[2].strip()
        if text.startswith("#") and passage:
            break
        if re.search(r"\w", text) and not text.startswith(("#", "```", "~~~")):
            passage.append((int(found[1]), text))
    words = set(key_words(" ".join(_QUOTED.findall(question)) or question))
    ranked = sorted(passage, key=lambda each: not words & set(key_words(each[1])))[:_LINES_QUOTED]
    return [f'- "{text}" ({file[1]}:{number})' for number, text in sorted(ranked)]


def _answer(quotes: list[str], question: str) -> str:
    if quotes:
        return "\n".join(dict.fromkeys(quotes))
    tried = " and ".join(map(repr, _queries(question))) or "nothing"
    return f"The files say nothing on this; searched for {tried}."


# --- writer: findings in order ---------------------------------------------------------------------------


def _write(findings: str) -> str:
    """Put findings, each under a heading of its own, into a text that begins with their sources."""
    sections: list[tuple[str, list[str]]] = []
    for line in findings.splitlines():
        if found := _SECTION.match(line):
            sections.append((found[1], []))
        elif sections and line.strip():
            sections[-1][1].append(line)
    sources = [source[1] for _, lines in sections for line in lines if (source := _SOURCE.search(line))]
    files = list(dict.fromkeys(sources))
    text = [f"Questions: {len(sections)}. Lines quoted: {len(sources)}. Files: {', '.join(files) or 'none'}."]
    for heading, lines in sections:
        text += ["", f"## {heading}", "", *lines]
    return "\n".join(text)
