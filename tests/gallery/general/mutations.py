"""Texts that differ a little from a right answer, to find one that breaks a certain constraint and no other."""

import re
from itertools import product

from helpers.gallery.general.writer import NOUNS

WORD = re.compile(r"[A-Za-z]+")


def mutations(text, asked):
    """Yield changed texts. asked: kind of constraint -> its values."""
    yield from _of_the_whole(text)
    yield from _of_lines(text)
    yield from _of_words(text, asked)
    yield from _with_fewer_words(text, asked)
    yield from _with_fewer_words(_with_one_beginning(text), asked)


def _with_one_beginning(text):
    """Let every line begin with the first word of the text."""
    first = WORD.search(text)[0]
    return re.sub(r"^(\W*)[A-Za-z]+", rf"\g<1>{first}", text, flags=re.MULTILINE)


def _of_the_whole(text):
    yield text[1:-1]
    yield text[:-1]
    yield text.replace("- ", "* ", 1)
    yield text.replace("1. ", "1) ", 1)
    yield text.replace(". ", " ", 1)
    yield text.replace("\n\n", "\n", 1)
    yield text.replace("\n", " ", 1)
    yield text.swapcase()


def _of_lines(text):
    lines = text.split("\n")
    for place, line in enumerate(lines):
        yield "\n".join([*lines[:place], *lines[place + 1 :]])
        yield "\n".join([*lines[:place], line, *lines[place:]])
        yield "\n".join([*lines[:place], line.removeprefix("- "), *lines[place + 1 :]])


def _of_words(text, asked):
    words = list(WORD.finditer(text))
    upper = text.upper() == text
    extra = [asked.get("avoids_word", {}).get("word", "as"), "extraordinary", "cup", "hat"]
    letter = asked.get("avoids_letter", {}).get("letter")
    if letter:
        extra += [noun for noun in NOUNS if letter in noun][:3]
    usable = [noun for noun in NOUNS if len(noun) < 5 and not (letter and letter in noun) and noun not in text.lower()]
    extra += [" ".join(usable[:count]) for count in (4, 8, 12, 16, 20, 24)]
    if upper:
        extra = [word.upper() for word in extra]
    for number, word in enumerate(words):
        before, after = text[: word.start()], text[word.end() :]
        similar = (word[0].swapcase(), word[0][0].swapcase() + word[0][1:], word[0] + word[0][-1], word[0][:-1])
        if letter:
            similar = (*similar, word[0] + (letter.upper() if upper else letter))
        for other in (*extra, *similar):
            yield before + other + after
        for inserted in (*extra, word[0], "\u00a7", " " * 300):
            yield f"{before}{word[0]} {inserted}{after}"
        yield f"{before}{word[0]},{after}"
        yield f"{before}{word[0]}. {after}"
        yield f"{before}{word[0]}\n{after}"
        yield before.rstrip(" ") + after
        yield before + after.lstrip(" ")
        if number + 1 < len(words):
            following = words[number + 1]
            between = text[word.end() : following.start()]
            yield before + following[0] + between + word[0] + text[following.end() :]


def _with_fewer_words(text, asked):
    """Yield texts with fewer words, or fewer different ones: some words are kept, the others are taken away or become
    one that is there already."""
    words = [word[0] for word in WORD.finditer(text)]
    required = asked["contains_words"]["words"]
    line_starts = {match[0].lower() for line in re.split(r"\n|\. ", text) if (match := WORD.search(line))}
    keys = {*asked.get("json_object", {}).get("fields", {}), "true"}
    ends = {word.lower() for word in words[:2] + words[-2:]}
    for more, filling in product([set(), line_starts, ends, keys], ["", "before", *required]):
        kept = {*required, *more}
        yield _without(text, kept, filling, len(words))
        if not filling:
            for count in range(1, len(words)):
                yield _without(text, kept, filling, count)


def _without(text, kept, filling, count):
    """Replace the first `count` words that are not kept. filling: "before" for the word before."""
    last = ""
    replaced = 0

    def replacement(match):
        nonlocal last, replaced
        word = match[0]
        if word.lower() in kept or replaced == count or (filling == "before" and not last):
            last = word
            return word
        replaced += 1
        new = last if filling == "before" else filling
        return new.upper() if word.isupper() else new

    return re.sub(r" +(?=[ .\"])", "", WORD.sub(replacement, text)) if not filling else WORD.sub(replacement, text)
