"""How the offline model reads text: words, clauses, names and figures, in English and Chinese."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "STOP_WORDS",
    "clauses",
    "clip",
    "names",
    "numbers",
    "quoted",
    "sentences",
    "stem",
    "terms",
]

STOP_WORDS = frozenset(
    """a about above after again all already also am an and another any anything are as ask at be been before but by
    call called calling can check checked checking could current day did do does doing don done each else ever every
    fetch find for from further get gets getting give given gives go going good got great had has have he hello help
    her here hey hi him his how i if in into is it its just keep know later let like look looked looking looks lookup
    made make makes many may maybe me might mind more most much must my need needed needs never no not now of off ok
    okay on once one only or other our out over please provide provided quick re really return returned returns right
    said say says see set shall she should show shown so some something sure take tell than thank thanks that the their
    them then there these they thing things this those through to today tomorrow tonight too tool tools try under until
    up us use used uses using ve very via want was we well were what when where whether which while who whom whose why
    will with within without won would yes yet you your yours""".split()
)
"""English words that say nothing about which tool or memory is meant."""

# What a Chinese word says in English, so that a Chinese request finds a tool described in English.
_GLOSSARY = {
    "天气": "weather",
    "气温": "weather temperature",
    "空气质量": "air quality",
    "时间": "time",
    "几点": "time",
    "日期": "date",
    "搜索": "search",
    "计算": "calculate",
    "相加": "add",
    "加上": "add",
    "相乘": "multiply",
    "乘以": "multiply",
    "新闻": "news",
    "文件": "file",
    "翻译": "translate",
    "邮件": "email",
    "发送": "send",
    "股票": "stock",
    "价格": "price",
    "汇率": "exchange rate",
    "订单": "order",
    "退款": "refund",
    "提醒": "reminder",
    "航班": "flight",
    "机票": "flight",
    "酒店": "hotel",
    "预订": "book",
    "跑步": "running",
    "名字": "name",
    "我叫": "name",
    "我是": "name",
}
_SAME_AS = {"plus": "add", "sum": "add", "times": "multiply", "product": "multiply", "forecast": "weather"}
_CHINESE_STOP = re.compile(
    "今天|明天|后天|昨天|现在|目前|一下|再查|查询|查一查|查查|看看|帮我|帮忙|请问|告诉|知道|怎么样|怎么|如何|什么|多少|哪里|哪个|"
    "以及|还有|需要|应该|可以|适合|根据|刚才|刚刚|之前|你好|谢谢|我们|你们|他们|记住|注意|"
    "[的了吗呢吧啊呀请我你他她它们是在和与跟及或查给把被这那就都也很]"
)
_CHINESE = re.compile("[\u3400-\u9fff]+")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|「([^」]+)」|『([^』]+)』|《([^》]+)》|(?<!\w)'([^']+)'(?!\w)|`([^`]+)`")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_CLAUSE_END = re.compile(
    r"[;,:]\s|[，；、：]|\s(?:and|then|but|&)\s|和|以及|还有|(?<=[.!?])\s+|(?<=[。！？])|\n+", re.I
)
_NUMBER = re.compile(r"(?<![A-Za-z0-9_.:/-])-?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,15})(?:\.[0-9]{1,15})?(?![0-9:/-])")
_NUMBER_WORDS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
_NUMBER_WORD = re.compile(rf"\b(?:{'|'.join(_NUMBER_WORDS)})\b", re.I)

_NAME_WORD = re.compile(r"[^\W\d_][\w'’&-]*")
_GAP_IN_NAME = re.compile(r" (?:(?:de|da|do|la|le) )?")
_COORDINATION = re.compile(r"\s*(?:,|&|\b(?:and|or)\b|,\s*(?:and|or)\b)\s*", re.I)
_PREPOSITION = re.compile(r"\b(in|at|near|for|of|from|to|with|about)\s+(?:the\s+)?$", re.I)
_NOT_NAMES = STOP_WORDS | frozenset(
    """add answer based book calculate cancel compare compute convert create delegate delete describe draft edit email
    explain find forget list multiply note open order plan plus read remember remind remove run save search send sum
    summarise summarize translate update weather write
    monday tuesday wednesday thursday friday saturday sunday january february march april june july august september
    october november december""".split()
)


def stem(word: str) -> str:
    """Return the word without its plural or verb ending; one word in all its forms has one stem."""
    word = _SAME_AS.get(word, word)
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    for ending in ("ing", "ed", "es", "s"):
        if len(word) - len(ending) >= 3 and word.endswith(ending) and not word.endswith(("ss", "us", "is")):
            word = word[: -len(ending)]
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def terms(text: str) -> list[str]:
    """Return what the text is about: its distinct stems in order, without stop words.

    Snake case and camel case are split. Of Chinese, each pair of neighbouring characters is a term, and
    a word of the glossary adds its English.
    """
    found: dict[str, None] = {}
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    for match in _WORD.finditer(_CHINESE.sub(" ", spaced).lower()):
        word = re.split("['’]", match[0])[0]
        if word not in STOP_WORDS:
            found[stem(word)] = None
    for chinese, english in _GLOSSARY.items():
        if chinese in text:
            found |= {stem(word): None for word in english.split()}
    for part in _chinese_parts(text):
        found |= {part[at : at + 2]: None for at in range(max(1, len(part) - 1))}
    return list(found)


def sentences(text: str) -> list[str]:
    """Return the sentences of the text, without blank ones."""
    return [part.strip() for part in _SENTENCE_END.split(text) if part.strip()]


def clauses(text: str) -> list[str]:
    """Return the parts of the text that may each ask for something else; quoted text stays whole."""
    inside = {at for match in _QUOTED.finditer(text) for at in range(match.start() + 1, match.end())}
    parts, start = [], 0
    for match in _CLAUSE_END.finditer(text):
        if match.start() not in inside:
            parts.append(text[start : match.start()])
            start = match.end()
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


def clip(text: str, limit: int) -> str:
    """Return the text on one line, cut to `limit` characters with an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def quoted(text: str) -> list[str]:
    """Return what stands in quotation marks or backticks."""
    return [next(group for group in match.groups() if group is not None) for match in _QUOTED.finditer(text)]


def numbers(text: str) -> list[float]:
    """Return the numbers in the text, in order; figures inside dates, times and codes do not count."""
    found = [(match.start(), float(match[0].replace(",", ""))) for match in _NUMBER.finditer(text)]
    found += [(match.start(), float(_NUMBER_WORDS[match[0].lower()])) for match in _NUMBER_WORD.finditer(text)]
    return [number for _, number in sorted(found)]


def names(text: str) -> list[tuple[str, str]]:
    """Return the names in the text, each with the preposition before it, or "".

    A name is a run of capitalised words, or of Chinese characters that no stop word and no word of the
    glossary claims. A name joined to one before it shares that one's preposition.
    """
    found: list[tuple[str, str]] = []
    end = 0
    for start, stop in _name_spans(text):
        gap = text[end:start]
        before = _PREPOSITION.search(text[max(0, start - 20) : start])
        if before:
            preposition = before[1].lower()
        else:
            preposition = found[-1][1] if found and _COORDINATION.fullmatch(gap) else ""
        found.append((re.sub("['’]s$", "", text[start:stop]), preposition))
        end = stop
    return found + [(part, "") for part in _chinese_parts(text) if 2 <= len(part) <= 8]


def _name_spans(text: str) -> Iterator[tuple[int, int]]:
    span: tuple[int, int] | None = None
    for match in _NAME_WORD.finditer(_CHINESE.sub(lambda run: " " * len(run[0]), text)):
        if not _is_name(match[0]):
            continue
        if span and _GAP_IN_NAME.fullmatch(text[span[1] : match.start()]):
            span = (span[0], match.end())
            continue
        if span:
            yield span
        span = match.span()
    if span:
        yield span


def _is_name(word: str) -> bool:
    return len(word) > 1 and word[0].isupper() and re.split("['’]", word)[0].lower() not in _NOT_NAMES


def _chinese_parts(text: str) -> list[str]:
    parts: list[str] = []
    for run in _CHINESE.findall(text):
        for known in _GLOSSARY:
            run = run.replace(known, " ")
        parts += _CHINESE_STOP.sub(" ", run).split()
    return parts
