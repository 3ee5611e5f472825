"""Finds texts of one set that are also, or nearly, in another, such as problems to train on in an evaluation.

Three kinds of overlap are told apart, and the first that holds counts:

- "exact": equal but for letter case, white space and the way of writing them, such as LaTeX that spaces or sizes;
- "digits": equal but for that and for the digits of numbers. Operators stay, so "3 + 4" is not "3 - 4";
- "8-gram": eight consecutive words are in both. Words are runs of letters and digits, so a sentence in a script without
  spaces is one word, and such texts are alike in eight clauses rather than in eight words.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

#: Words in a row that two texts must share.
PASSAGE_WORDS = 8
#: Words of a passage that must be long or Chinese, Japanese or Korean: "x 4 x 3 x 2 x 1" is in many a formula.
TELLING_WORDS = 3
#: Letters of a long word.
TELLING_LETTERS = 3
#: A passage in more texts than this is a stock phrase. Brown et al. (2020), "Language Models are Few-Shot Learners",
#: appendix C, leave n-grams out that are in more than ten documents, and so does lm-evaluation-harness.
MOST_TEXTS = 10
#: A text of which the other set has this share is an overlap even if that is stock phrases only: a problem that a set
#: holds in many versions makes a stock phrase of each of its own passages.
MOSTLY_SHARED = 0.5
#: Characters of the longest text that is brought into a Unicode normal form, whose time is not linear for every text.
LONGEST_UNICODE_FORM = 20_000
#: 16 bytes, so that two different passages of a hundred million have equal digests with a probability below 1e-22.
DIGEST_BYTES = 16

EXACT = "exact"
DIGITS = "digits"
PASSAGE = "8-gram"
KINDS = (EXACT, DIGITS, PASSAGE)
_PHRASES = {EXACT: "exactly", DIGITS: "but for their numbers", PASSAGE: "with eight words in a row"}

#: Kana, ideographs and Hangul: one of these characters is a syllable or a word.
_CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_CJK_CHARACTER = re.compile(f"[{_CJK}]")
_WORD = re.compile(r"[^\W_]+")
#: Digits, with the separators of 1,234 and 3.5.
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_END_MARKS = ".,;:?!"
#: A space that does not keep two numbers apart, as that of "\\frac 1 12" does.
_NEEDLESS_SPACE = re.compile(r"(?<!\d) | (?!\d)")
#: The arguments of a fraction without braces: one digit each.
_BARE_DIGITS = re.compile(r"(\\[dt]?(?:frac|binom)) ?(\d) ?(\d)")

#: What one problem is written with and another copy of it without. The groups are what remains of it.
_MARKUP = re.compile(
    r"""
    (\\\\ | \\[{}])                                        # a new line, and the braces of a set, remain
    | (\\) [dt] (?= (?:frac|binom) (?![a-z]) )               # \dfrac and \tbinom are \frac and \binom
    | \\ (?:left|right|displaystyle|quad|qquad) (?![a-z])    # but not \leftarrow
    | \\ [,;:!\s$()\[\]]
    | [$~{}*]
    """,
    re.VERBOSE,
)
#: The number of a problem in its book, at the beginning of a text: "Problem 7.", "Example 2", "4." or "(3)".
#: "(3) + 4" and "4.5" begin with a number of their own.
_ITEM_NUMBER = re.compile(
    rf"""
    (?:problem|example|exercise|question) [ ]? \d+ (?:\.\d+)* (?: [.:)] (?!\d) | [ ] )
    | (?: \d+ (?:\.\d+)* [.)] | \(\d+\) ) (?: [ ] (?=[\w\\]) | (?=[{_CJK}]) )
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Overlap:
    """A text that is in the other set, too.

    place: of the text in its set. other: place of the first text of the other set that it overlaps with in this way;
    where only stock phrases are shared, the first that has any of them. kind: one of `KINDS`. share: of the different
    passages of the text, how many the other set has at all, stock phrases included, from 0 to 1; 1.0 for "exact", and
    0.0 for a text without a passage.
    """

    place: int
    other: int
    kind: str
    share: float


def normalized(text: str) -> str:
    r"""Return a form of a text to compare, not to show, that is the same for the ways one problem is written.

    It is in lower case and Unicode NFKC (the latter up to `LONGEST_UNICODE_FORM` characters). It has no white space but
    between digits, and no item number at the beginning, punctuation at the end, `$`, `*`, grouping braces and LaTeX
    that only spaces or sizes: "4. Find $\dfrac{1}{2}$." becomes "find\frac1 2". A text that has nothing else is only
    put in lower case.
    """
    return _joined(_plain(text))


def masked(text: str) -> str:
    """Return the normalized text with "#" in place of each number: "Add 1,234 and 3.5." becomes "add#and#"."""
    return _masked(normalized(text))


def find_overlaps(texts: Sequence[str], others: Sequence[str]) -> list[Overlap]:
    """Return the overlaps of `texts` with `others`, at most one for each text, in their order.

    A passage is eight consecutive words, of which `TELLING_WORDS` at least have three letters or a Chinese, Japanese or
    Korean character. One that is in more than `MOST_TEXTS` different texts of the two sets together is a stock phrase,
    which is no overlap unless `MOSTLY_SHARED` of the passages of a text are in the other set. Texts that are equal once
    normalized count as one there: however often a problem was copied, it remains a problem.

    The time is linear in the number of characters. The memory holds the passages of the smaller set only.
    """
    texts_are_smaller = sum(map(len, texts)) <= sum(map(len, others))
    if texts_are_smaller:
        text_prints = [_fingerprint(text) for text in texts]
        known = _all_passages(text_prints)
        other_prints = [_fingerprint(other, known) for other in others]
    else:
        other_prints = [_fingerprint(other) for other in others]
        known = _all_passages(other_prints)
        text_prints = [_fingerprint(text, known) for text in texts]

    other_set = _index(other_prints)
    stock_phrases = _find_stock_phrases([*text_prints, *other_prints])
    overlaps = []
    for place, fingerprint in enumerate(text_prints):
        overlap = _find_overlap(place, fingerprint, other_set, stock_phrases)
        if overlap is not None:
            overlaps.append(overlap)
    return overlaps


def without_overlaps(texts: Sequence[str], others: Sequence[str]) -> tuple[list[int], dict[str, int]]:
    """Return the places of the texts that are not in the other set, and how many of each of `KINDS` were left out."""
    overlaps = find_overlaps(texts, others)
    left_out = {overlap.place for overlap in overlaps}
    kept = [place for place in range(len(texts)) if place not in left_out]
    return kept, _count_kinds(overlaps)


def describe_overlaps(found: Sequence[Overlap], count: int) -> str:
    """Return a sentence on the overlaps that were found in a set of `count` texts."""
    noun = "text" if count == 1 else "texts"
    if not found:
        return f"None of {count:,} {noun} is in the other set."
    verb = "is" if len(found) == 1 else "are"
    counts = _count_kinds(found)
    parts = [f"{counts[kind]:,} {_PHRASES[kind]}" for kind in KINDS if counts[kind]]
    return f"{len(found):,} of {count:,} {noun} {verb} in the other set too: {', '.join(parts)}."


@dataclass(frozen=True)
class _Fingerprint:
    """The parts of a text that are compared: digests of its normalized and its masked form, and of its passages.

    passages: those that can be in the other set. passage_count: how many different ones the text has in all.
    """

    normalized: bytes
    masked: bytes
    passages: frozenset[bytes]
    passage_count: int


@dataclass(frozen=True)
class _OtherSet:
    """A set to look texts up in. Each dictionary: digest -> place of the first text that has it."""

    by_normalized: dict[bytes, int]
    by_masked: dict[bytes, int]
    by_passage: dict[bytes, int]


def _fingerprint(text: str, known: Collection[bytes] | None = None) -> _Fingerprint:
    """Return the fingerprint of a text. known: the passages of the other set, where they are known already."""
    plain = _plain(text)
    joined = _joined(plain)
    passages = frozenset(_digests_of_passages(plain))
    kept = passages if known is None else passages & known
    return _Fingerprint(_digest(joined), _digest(_masked(joined)), kept, len(passages))


def _plain(text: str) -> str:
    """Return a text as `normalized` describes, but with one space between its words and its punctuation at the end."""
    if len(text) <= LONGEST_UNICODE_FORM:
        text = unicodedata.normalize("NFKC", text)
    lowered = text.lower()
    # The space separates words, as "x" and "y" in "x\\quad y"; two texts are compared without it.
    unmarked = _MARKUP.sub(r"\1\2 ", _BARE_DIGITS.sub(r"\1 \2 \3", lowered))
    plain = _single_spaced(unmarked)
    item_number = _ITEM_NUMBER.match(plain)
    if item_number is not None:
        plain = plain[item_number.end() :]
    return plain or _single_spaced(lowered)


def _single_spaced(text: str) -> str:
    return " ".join(text.split())


def _joined(plain: str) -> str:
    """Return a plain text without punctuation at the end and without spaces, but those between digits, unless it has
    nothing else."""
    return _NEEDLESS_SPACE.sub("", plain).rstrip(_END_MARKS) or plain


def _masked(joined: str) -> str:
    return _NUMBER.sub("#", joined)


def _digests_of_passages(plain: str) -> Iterator[bytes]:
    """Yield the digest of each eight consecutive words of a plain text that hold `TELLING_WORDS`."""
    words = _WORD.findall(plain)
    is_telling = [_is_telling(word) for word in words]
    telling_count = 0
    for last, word_is_telling in enumerate(is_telling):
        telling_count += word_is_telling
        first = last - PASSAGE_WORDS + 1
        if first < 0:
            continue
        if telling_count >= TELLING_WORDS:
            yield _digest(" ".join(words[first : last + 1]))
        telling_count -= is_telling[first]


def _is_telling(word: str) -> bool:
    """Tell whether a word is long enough to be more than the name of a variable."""
    letters = sum(map(str.isalpha, word))
    return letters >= TELLING_LETTERS or _CJK_CHARACTER.search(word) is not None


def _digest(text: str) -> bytes:
    """Return a digest of a text that is the same in every process, which `hash` is not."""
    # Half of a surrogate pair, which a damaged file may hold, is no error here.
    return blake2b(text.encode(errors="surrogatepass"), digest_size=DIGEST_BYTES).digest()


def _all_passages(fingerprints: Iterable[_Fingerprint]) -> set[bytes]:
    passages = set()
    for fingerprint in fingerprints:
        passages |= fingerprint.passages
    return passages


def _index(fingerprints: Sequence[_Fingerprint]) -> _OtherSet:
    index = _OtherSet({}, {}, {})
    for place, fingerprint in enumerate(fingerprints):
        index.by_normalized.setdefault(fingerprint.normalized, place)
        index.by_masked.setdefault(fingerprint.masked, place)
        for passage in fingerprint.passages:
            index.by_passage.setdefault(passage, place)
    return index


def _find_stock_phrases(fingerprints: Iterable[_Fingerprint]) -> set[bytes]:
    """Return the passages that are in more than `MOST_TEXTS` different texts."""
    different_texts = {fingerprint.normalized: fingerprint for fingerprint in fingerprints}
    texts_with = Counter()
    for fingerprint in different_texts.values():
        texts_with.update(fingerprint.passages)
    return {passage for passage, count in texts_with.items() if count > MOST_TEXTS}


def _find_overlap(
    place: int, fingerprint: _Fingerprint, other_set: _OtherSet, stock_phrases: Collection[bytes]
) -> Overlap | None:
    """Return the overlap of a text with the other set; None where there is none."""
    other = other_set.by_normalized.get(fingerprint.normalized)
    if other is not None:
        return Overlap(place, other, EXACT, 1.0)

    shared = [passage for passage in fingerprint.passages if passage in other_set.by_passage]
    share = len(shared) / fingerprint.passage_count if shared else 0.0
    other = other_set.by_masked.get(fingerprint.masked)
    if other is not None:
        return Overlap(place, other, DIGITS, share)

    counted = [passage for passage in shared if passage not in stock_phrases]
    if not counted and share >= MOSTLY_SHARED:
        counted = shared
    if counted:
        first_holder = min(other_set.by_passage[passage] for passage in counted)
        return Overlap(place, first_holder, PASSAGE, share)
    return None


def _count_kinds(overlaps: Iterable[Overlap]) -> dict[str, int]:
    """Return how many overlaps there are of each of `KINDS`."""
    counts = Counter(overlap.kind for overlap in overlaps)
    return {kind: counts[kind] for kind in KINDS}
