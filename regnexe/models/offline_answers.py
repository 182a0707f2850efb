"""What the offline model says: from tool results, from earlier in the conversation, or that it has nothing."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from regnexe.models.offline_matching import refers_back
from regnexe.models.offline_text import clauses, clip, sentences, terms

__all__ = ["NOTICE", "answer", "digest", "is_summary", "newest_request", "results_since", "transcript_in"]

NOTICE = "(offline demo model: a scripted stand-in, not a language model)"

_RESULT_LIMIT = 4000
_QUOTE_LIMIT = 400
_LINE_LIMIT = 200
_DIGEST_LIMIT = 6000

_ASKS = re.compile(
    r"^(?:please|can|could|would|will|what|who|whom|whose|where|when|why|which|how|is|are|do|does|did|check|tell|show|give|"
    r"get|find|look|search|add|use|ask|write|summari[sz]e|let|should|based on)(?![\w'’])"
    r"|^(?:请|帮|查|告诉)|[?？]$",
    re.I,
)
_OWN_NAME = re.compile(r"\b(?:I am|[Ii]['’]m|[Cc]all me) [A-Z]|我叫|我是")
_SPEAKING = frozenset(
    terms("talk discuss mention chat conversation told asked earlier previously remember remind question")
)
_GREETING = re.compile(r"^(?:hello|hi|hey|good (?:morning|afternoon|evening)|thanks|thank you|你好|您好|谢谢)\b", re.I)
_SUMMARISE = re.compile(r"\b(?:summari[sz]e|summary|recap|extract|condense|compress)|总结|摘要|概括", re.I)
_CONVERSATION = re.compile(
    r"\b(?:conversation|context|history|transcript|messages|dialogue|chat)\b|对话|上下文|历史|会话", re.I
)
_TRANSCRIPT = re.compile(
    r"<(messages|conversation|transcript|history)>\s*(?:Messages to summarize:\s*)?(.*?)\s*(?:</\1>|$)", re.S
)
_XML_MESSAGE = re.compile(r"^(\w+)\"[^>]*>")
_XML_CALL = re.compile(r"<tool_call\b[^>]*\bname=\"([^\"]+)\"")
_SPOKEN = re.compile(r"^(human|user|ai|assistant|tool|system)(?: \([\w-]+\))?: ", re.I | re.M)
_SUMMARY_BODY = re.compile(r"<summary>\s*(.*?)\s*</summary>", re.S)
_DIGEST_LINE = re.compile(r"^(?:User said|Result(?: of [\w-]+)?): ", re.M)


@dataclass(frozen=True)
class _Memory:
    """Something said or found earlier.

    Attributes:
        text: what to quote.
        about: what a question about it shares words with.
        loosely: words that count half.
        trust: how well it serves as an answer, 1 at most.
    """

    text: str
    about: frozenset[str]
    loosely: frozenset[str] = frozenset()
    trust: float = 1.0

    def score(self, words: set[str]) -> float:
        shared = len(self.about & words) + 0.5 * len((self.loosely - self.about) & words)
        return shared * self.trust


def is_summary(message: BaseMessage) -> bool:
    """Return whether a summariser put this message in place of earlier ones."""
    return isinstance(message, HumanMessage) and message.additional_kwargs.get("lc_source") == "summarization"


def newest_request(messages: Sequence[BaseMessage]) -> int:
    """Return the index of the newest message that a person wrote, or -1."""
    found = [at for at, one in enumerate(messages) if isinstance(one, HumanMessage) and not is_summary(one)]
    return found[-1] if found else -1


def results_since(messages: Sequence[BaseMessage], index: int) -> list[tuple[str, ToolMessage]]:
    """Return the tool results after this index, each with the name of its tool."""
    called = {call["id"]: call["name"] for one in messages if isinstance(one, AIMessage) for call in one.tool_calls}
    results = [one for one in messages[index + 1 :] if isinstance(one, ToolMessage)]
    return [(one.name or called.get(one.tool_call_id, "the tool"), one) for one in results]


def answer(messages: Sequence[BaseMessage]) -> str:
    """Return the answer to the newest request: from the results that follow it, else from what came before."""
    index = newest_request(messages)
    results = results_since(messages, index)
    if results:
        text = " ".join(_told(name, result) for name, result in results)
    elif index >= 0:
        text = _from_memory(messages[index].text, messages[:index])
    else:
        text = _quoting(_memories(messages)[-3:])
    return f"{text} {NOTICE}"


def transcript_in(messages: Sequence[BaseMessage]) -> str | None:
    """Return the transcript that this request asks to summarise, or None when it asks for something else."""
    people = [one for one in messages if isinstance(one, HumanMessage)]
    if len(people) != 1 or any(isinstance(one, AIMessage | ToolMessage) for one in messages):
        return None
    text = people[0].text
    instructions = "\n".join(one.text for one in messages)
    if not (_SUMMARISE.search(instructions) and _CONVERSATION.search(instructions)):
        return None
    marked = _TRANSCRIPT.search(text)
    if marked:
        return str(marked[2])
    return text if _SPOKEN.search(text) else None


def digest(transcript: str) -> str:
    """Return a line for each message of a person and each tool result, clipped; of a long transcript the newest."""
    turns = list(_xml_turns(transcript)) or list(_spoken_turns(transcript))
    lines = [line for role, text in turns for line in _digest_lines(role, text)]
    if not lines:
        lines = [f"User said: {clip(transcript, _LINE_LIMIT) or 'nothing'}"]
    kept: list[str] = []
    for line in reversed(lines):
        if sum(map(len, kept)) + len(line) > _DIGEST_LIMIT:
            break
        kept.append(line)
    return "\n".join(reversed(kept))


def _told(name: str, result: ToolMessage) -> str:
    text = _plain(result.text)
    text = text if len(text) <= _RESULT_LIMIT else text[:_RESULT_LIMIT] + "…"
    if result.status == "error":
        return f"{name} failed: {_ended(text or 'it gave no reason')}"
    return f"From {name}: {_ended(text or 'no text')}"


def _plain(text: str) -> str:
    return text.replace(NOTICE, "").strip()


def _from_memory(question: str, earlier: Sequence[BaseMessage]) -> str:
    memories = _memories(earlier)
    words = set(terms(question))
    if _SUMMARISE.search(question) and _CONVERSATION.search(question) and memories:
        return _quoting([memory for memory in memories if memory.trust == 1][-10:] or memories[-3:])
    asks = any(_ASKS.search(part) for part in clauses(question)) or refers_back(question)
    best = max((memory.score(words) for memory in memories), default=0.0)
    if asks and best >= (0.5 if refers_back(question) else 1.0):
        return _quoting([memory for memory in memories if memory.score(words) == best][-3:])
    if refers_back(question) and memories and not words - _SPEAKING:
        return _quoting(memories[-3:])
    return _without_memory(question, asks=asks)


def _without_memory(question: str, *, asks: bool) -> str:
    if _GREETING.search(question.strip()):
        return "Hello."
    if not asks and question.strip():
        return f"Noted: {_ended(clip(question, _QUOTE_LIMIT))}"
    return "There is nothing about that in this conversation, and no tool here fits it."


def _quoting(memories: Sequence[_Memory]) -> str:
    if not memories:
        return "There is nothing in this conversation yet."
    quotes = dict.fromkeys(_ended(clip(memory.text, _QUOTE_LIMIT)) for memory in memories)
    return "Earlier in this conversation: " + " ".join(quotes)


def _ended(text: str) -> str:
    return f"{text}." if text[-1:].isalnum() else text


def _memories(earlier: Sequence[BaseMessage]) -> list[_Memory]:
    called = {call["id"]: call for one in earlier if isinstance(one, AIMessage) for call in one.tool_calls}
    found: list[_Memory] = []
    request = ""
    for message in earlier:
        text = _plain(message.text)
        if is_summary(message):
            found += _from_summary(text)
        elif isinstance(message, HumanMessage):
            request = text
            found += _from_person(text)
        elif isinstance(message, ToolMessage):
            call = called.get(message.tool_call_id)
            about = terms(f"{call['name']} {call['args']} {text}" if call else f"{message.name or ''} {text}")
            found.append(_Memory(text, frozenset(about), frozenset(terms(request)), _TRUST[message.status]))
        elif isinstance(message, AIMessage) and text and NOTICE not in message.text:
            found.append(_Memory(text, frozenset(terms(text)), trust=0.5))
    return found


_TRUST = {"success": 1.0, "error": 0.4}


def _from_person(text: str) -> Iterator[_Memory]:
    for sentence in sentences(text):
        parts = clauses(sentence)
        # A sentence that asks may still state something first: "My name is Ann, what is the weather?"
        for part in parts if _ASKS.search(sentence) else [sentence]:
            about = {*terms(part), *(terms("name") if _OWN_NAME.search(part) else ())}
            yield _Memory(f"You said: {part}", frozenset(about), trust=0.5 if _ASKS.search(part) else 1.0)


def _from_summary(text: str) -> Iterator[_Memory]:
    body = _SUMMARY_BODY.search(text)
    for line in (body[1] if body else text).splitlines():
        said = line.strip(" -*#")
        if _DIGEST_LINE.match(said) and said.startswith("User said"):
            yield from _from_person(said.partition(": ")[2])
        elif said:
            quote = _DIGEST_LINE.sub("", said)
            yield _Memory(quote, frozenset(terms(said.removeprefix("Result of "))))


def _xml_turns(transcript: str) -> Iterator[tuple[str, str]]:
    tools: list[str] = []
    for part in transcript.split('<message type="')[1:]:
        opening = _XML_MESSAGE.match(part)
        if not opening:
            continue
        role, inner = opening[1], part[opening.end() :].partition("</message>")[0].strip()
        tools += _XML_CALL.findall(inner) if role == "ai" else []
        yield (f"tool {tools.pop(0)}" if role == "tool" and tools else role), html.unescape(inner)


def _spoken_turns(transcript: str) -> Iterator[tuple[str, str]]:
    starts = [*_SPOKEN.finditer(transcript)]
    ends = [match.start() for match in starts[1:]] + [len(transcript)] * bool(starts)
    for match, end in zip(starts, ends, strict=True):
        yield match[1].lower().replace("user", "human"), transcript[match.end() : end].strip()


def _digest_lines(role: str, text: str) -> Iterable[str]:
    if role.startswith("tool"):
        name = role.removeprefix("tool").strip()
        return [f"Result{f' of {name}' if name else ''}: {clip(_plain(text), _LINE_LIMIT)}"]
    if role != "human":
        return []
    earlier = [line.strip() for line in text.splitlines() if _DIGEST_LINE.match(line.strip())]
    return earlier or [f"User said: {clip(_plain(text), _LINE_LIMIT)}"]
