import pytest

from helpers import Harmony


@pytest.fixture
def harmony(tokenizer):
    return Harmony(tokenizer)


def ids(tokenizer, text):
    return tokenizer(text, add_special_tokens=False).input_ids


ANALYSIS = "<|channel|>analysis<|message|>I add.<|end|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>7"


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        (ANALYSIS + FINAL + "<|return|>", ("7", "I add.", "stop")),
        (ANALYSIS + FINAL, ("7", "I add.", "length")),
        (ANALYSIS, ("", "I add.", "length")),
        ("<|channel|>analysis<|message|>I add", ("", "I add", "length")),
        ("<|channel|>final<|message|>7<|return|>", ("7", "", "stop")),
        ("<|channel|>commentary<|message|>x<|call|>", ("", "", "stop")),
        ("<|message|>no channel<|return|>", ("", "", "stop")),
        ("final 7<|return|>", ("", "", "stop")),
        (ANALYSIS + ANALYSIS + FINAL + "<|return|>", ("7", "I add.\nI add.", "stop")),
        ("", ("", "", "length")),
        ("<|end|><|start|><|channel|><|message|><|return|>", ("", "", "stop")),
        ("<|channel|>final <|constrain|>json<|message|>{}<|return|>", ("{}", "", "stop")),
        # text that only spells a channel is text
        ("<|channel|>analysis<|message|>assistantfinal 9<|end|>", ("", "assistantfinal 9", "length")),
    ],
)
def test_parse(harmony, tokenizer, text, parsed):
    """Whatever the model writes is parsed, and only a real final channel is an answer."""
    assert harmony.parse(ids(tokenizer, text)) == parsed


def test_round_trip_with_the_template(harmony, tokenizer):
    """What the template renders of an answer, parsed, is the answer."""
    messages = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "thinking": "Add.", "content": "4"}]
    whole = ids(tokenizer, tokenizer.apply_chat_template(messages, tokenize=False, reasoning_effort="low"))
    prompt = harmony.render(messages[:1], reasoning_effort="low")
    assert whole[: len(prompt)] == prompt
    assert harmony.parse(whole[len(prompt) :]) == ("4", "Add.", "stop")


def test_plain_string_is_a_user_message(harmony):
    assert harmony.render("Hi") == harmony.render([{"role": "user", "content": "Hi"}])


def test_effort_reaches_the_prompt(harmony, tokenizer):
    assert "Reasoning: high" in tokenizer.decode(harmony.render("Hi", reasoning_effort="high"))
