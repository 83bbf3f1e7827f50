"""What is known for long, and finding it."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt.errors import MemoryStoreError
from graphrt.memory import InMemoryStore, KnowledgeStore, MemoryRetriever, StoreRetriever

pytestmark = pytest.mark.anyio


async def test_text_is_kept_under_its_id() -> None:
    knowledge = KnowledgeStore(InMemoryStore())
    made = await knowledge.add("the office is in Bern")
    given_id = await knowledge.add("lunch is at noon", id="lunch")

    assert given_id == "lunch"
    assert await knowledge.get(made) == "the office is in Bern"
    await knowledge.add("lunch is at one", id="lunch")
    assert await knowledge.search() == [(made, "the office is in Bern"), ("lunch", "lunch is at one")]
    await knowledge.remove(made)
    await knowledge.remove(made)
    assert await knowledge.get(made) is None


async def test_two_texts_without_ids_are_two() -> None:
    knowledge = KnowledgeStore(InMemoryStore())

    assert await knowledge.add("same") != await knowledge.add("same")
    assert len(await knowledge.search()) == 2


async def test_empty_text_is_refused() -> None:
    with pytest.raises(MemoryStoreError, match="an empty text is no knowledge"):
        await KnowledgeStore(InMemoryStore()).add(" \n")


async def test_text_with_most_words_of_the_question_comes_first() -> None:
    knowledge = KnowledgeStore(InMemoryStore())
    for text in ("the office", "tea in the kitchen", "coffee in the OFFICE kitchen", "nothing of use"):
        await knowledge.add(text)

    found = await knowledge.retrieve("office, kitchen!")
    assert found == ["coffee in the OFFICE kitchen", "the office", "tea in the kitchen"]
    assert await knowledge.retrieve("office kitchen", limit=1) == found[:1]
    assert await knowledge.retrieve("office kitchen", limit=0) == []
    assert await knowledge.retrieve("zebra") == []
    assert [text for _, text in await knowledge.search("kitchen", limit=1)] == ["tea in the kitchen"]


async def test_knowledge_of_other_namespaces_is_not_found() -> None:
    store = InMemoryStore()
    await KnowledgeStore(store).add("a fact")
    other = KnowledgeStore(store, "other")
    await other.add("another fact")

    assert await other.retrieve("fact") == ["another fact"]


async def test_any_namespace_of_a_store_can_be_searched() -> None:
    store = InMemoryStore()
    await store.save("n", "city", "Bern")
    await store.save("n", "team", {"lead": "Ada", "size": 3})
    retriever: MemoryRetriever = StoreRetriever(store, "n")

    assert await retriever.retrieve("ADA") == ['{"lead": "Ada", "size": 3}']
    assert await retriever.retrieve("which city?") == ["Bern"]


@pytest.mark.parametrize("make", [KnowledgeStore, lambda store: StoreRetriever(store, "knowledge")])
async def test_limit_below_zero_is_refused(make: type[KnowledgeStore]) -> None:
    with pytest.raises(MemoryStoreError, match="limit of a search is -1"):
        await make(InMemoryStore()).retrieve("x", limit=-1)


def test_retriever_without_retrieve_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="abstract"):
        MemoryRetriever()  # type: ignore[abstract]  # that is the point


WORDS = st.lists(st.sampled_from(["ant", "bee", "cat", "dog"]), max_size=4).map(" ".join)


@settings(max_examples=60)
@given(st.lists(WORDS.filter(bool), max_size=6), WORDS.filter(bool), st.integers(0, 6))
def test_texts_are_in_order_of_common_words_and_then_of_age(texts: list[str], query: str, limit: int) -> None:
    async def ask() -> list[str]:
        knowledge = KnowledgeStore(InMemoryStore())
        for index, text in enumerate(texts):
            await knowledge.add(text, id=str(index))
        return await knowledge.retrieve(query, limit)

    def common(text: str) -> int:
        return len(set(text.split()) & set(query.split()))

    expected = sorted((text for text in texts if common(text)), key=common, reverse=True)
    assert anyio.run(ask) == expected[:limit]
