"""What cannot be served is refused in one clear sentence, before anything is drawn."""

import copy
import math

import pytest
import torch
from transformers import GptOssForCausalLM

from helpers import SamplingParams, UserError
from helpers.rollout.backends import captured
from helpers.rollout.backends.captured import CapturedBackend
from helpers.rollout.backends.transformers import TransformersBackend


@pytest.fixture
def refused(engine, monkeypatch):
    """Call it with the arguments of `generate` and words of the error; nothing may be drawn or prefilled."""

    def no(*_, **__):
        raise AssertionError("drawn before the arguments were checked")

    def refuse(words, *arguments, **settings):
        for draws in ("decode_step", "prefill"):
            monkeypatch.setattr(captured, draws, no)
        for ask in (engine.generate, engine.stream):  # not only when the stream is read
            with pytest.raises(UserError, match=words) as caught:
                ask(*arguments, **settings)
            assert one_sentence(caught.value)

    return refuse


def one_sentence(error):
    """Whether a message is short, whole, and in one line."""
    message = str(error)
    return "\n" not in message and message.endswith(".") and 20 < len(message) < 250


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"temperature": -0.1}, "temperature must be a number from 0"),
        ({"temperature": math.nan}, "temperature must be"),
        ({"temperature": math.inf}, "temperature must be"),
        ({"temperature": "1"}, "temperature must be .* got '1'"),
        ({"temperature": True}, "temperature must be"),
        ({"temperature": None}, "temperature must be"),
        ({"top_p": 0}, "top_p must be above 0 and at most 1; got 0"),
        ({"top_p": 1.1}, "top_p must be"),
        ({"top_p": math.nan}, "top_p must be"),
        ({"top_p": None}, "top_p must be"),
        ({"top_k": -1}, "top_k must be a whole number from 0 on; got -1"),
        ({"top_k": 1.0}, "top_k must be"),
        ({"top_k": True}, "top_k must be"),
        ({"top_k": None}, "top_k must be"),
        ({"min_p": 2}, "min_p must be from 0 to 1; got 2"),
        ({"min_p": -0.1}, "min_p must be"),
        ({"min_p": math.nan}, "min_p must be"),
        ({"max_new_tokens": 0}, "max_new_tokens must be a whole number from 1 on; got 0"),
        ({"max_new_tokens": 1.5}, "max_new_tokens must be"),
        ({"max_new_tokens": True}, "max_new_tokens must be"),
        ({"seed": "x"}, "seed must be a whole number; got 'x'"),
        ({"seed": 1.0}, "seed must be"),
        ({"seed": None}, "seed must be"),
        ({"stop_token_ids": 5}, "stop_token_ids must be a list of token ids; got 5"),
        ({"stop_token_ids": "ab"}, "stop_token_ids must be"),
        ({"stop_token_ids": (-1,)}, "stop_token_ids must be"),
        ({"stop_token_ids": (1.0,)}, "stop_token_ids must be"),
        ({"stop_token_ids": ("a",)}, "stop_token_ids must be"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_settings_that_cannot_be_drawn_with(settings, words):
    """Found here, a slip costs nothing; found by torch, it is a page of its insides after minutes."""
    with pytest.raises(UserError, match=words) as caught:
        SamplingParams(**settings)
    assert one_sentence(caught.value)


@pytest.mark.parametrize("stop_token_ids", [None, 1.5])
def test_stop_tokens_that_are_no_list(stop_token_ids):
    """`None` for "none" is what other libraries take."""
    with pytest.raises(UserError, match="stop_token_ids must be"):
        SamplingParams(stop_token_ids=stop_token_ids)


@pytest.mark.parametrize("temperature", [1e-50, 5e-46, 1e39, 1e300])
def test_temperatures_that_32_bits_cannot_hold(engine, prompts, temperature):
    """As 0 they divide the logits into NaN, and the error blames the adapter; as infinity torch refuses them."""
    try:
        params = SamplingParams(4, temperature)
        completions = engine.generate(prompts[:1], params)
    except UserError as error:
        assert "temperature" in str(error) and one_sentence(error)
    else:
        assert all(math.isfinite(logprob) for logprob in completions[0].logprobs)


def test_the_ends_of_every_range(engine, prompts):
    """What is allowed must run: a bound checked too strictly refuses the defaults of other libraries."""
    for settings in (
        {"temperature": 0}, {"temperature": 1}, {"temperature": 1e-30}, {"temperature": 1e30}, {"top_p": 1},
        {"top_p": 1e-300}, {"min_p": 1}, {"top_k": 10**12}, {"seed": -1}, {"seed": 2**70}, {"max_new_tokens": 1},
        {"stop_token_ids": [0, 831]}, {"stop_token_ids": {5}}, {"stop_token_ids": ()},
    ):  # fmt: skip
        found = engine.generate(prompts[:1], SamplingParams(**{"max_new_tokens": 2, **settings}))
        assert 1 <= len(found[0].token_ids) <= 2 and all(math.isfinite(x) for x in found[0].logprobs)


@pytest.mark.parametrize("prompts", [[], (), "one string"], ids=repr)
def test_no_prompts(refused, prompts):
    """A string is a sequence too: it would be answered letter by letter."""
    refused("prompts must be a list of at least one prompt", prompts, SamplingParams(2))


@pytest.mark.parametrize("prompts", [None, 5, {"role": "user", "content": "hi"}], ids=repr)
def test_prompts_that_are_no_list(refused, prompts):
    """A message is a mapping: its keys would be answered, two prompts "role" and "content"."""
    refused("prompts must be", prompts, SamplingParams(2))


def test_one_prompt_in_the_place_of_a_list(refused, prompts):
    """The commonest slip: the messages of one prompt, without the list around them."""
    refused("[Pp]rompt", prompts[0], SamplingParams(2))


@pytest.mark.parametrize(
    "prompt", ["", " \n", [], [{"role": "user", "content": ""}], [{"role": "system", "content": " "}]], ids=repr
)
def test_an_empty_prompt(refused, prompts, prompt):
    """The chat format would wrap it into a hundred tokens, and the model would answer its own system message."""
    refused("^Prompt 2 is empty: give it some text", [prompts[0], prompt, prompts[1]], SamplingParams(2))


NEEDS_KEYS = "of prompt 2 needs the keys 'role' and 'content', and has"


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ([{"from": "user", "value": "hi"}], f"^Message 1 {NEEDS_KEYS} 'from', 'value': rename"),
        ([{"role": "user", "text": "hi"}], f"^Message 1 {NEEDS_KEYS} 'role', 'text': rename"),
        ([{"role": "user", "content": "hi"}, {"content": "hi"}], f"^Message 2 {NEEDS_KEYS} 'content': rename"),
        ([{}], f"^Message 1 {NEEDS_KEYS} none: rename"),
        ([{f"key\n{number}": 1 for number in range(99)}], f"^Message 1 {NEEDS_KEYS} 'key"),
        (["hi", "there"], r"^Message 1 of prompt 2 is 'hi': give an object \(a dict\) with 'role' and 'content'"),
        ([["hi"]], r"^Message 1 of prompt 2 is \['hi'\]: give an object \(a dict\)"),
        ([None], r"^Message 1 of prompt 2 is None: give an object \(a dict\)"),
        ([{"role": "human", "content": "hi"}], "^Message 1 of prompt 2 has the role 'human': give it one of system, "),
        ([{"role": "User", "content": "hi"}], r"the role 'User' \(did you mean 'user'\?\): give it one of"),
        ([{"role": None, "content": "hi"}], f"^Message 1 {NEEDS_KEYS} 'content': rename"),
        ([{"role": ["user"], "content": "hi"}], r"has the role \['user'\].*: give it one of"),
        (
            [{"role": "user", "content": None}],
            f"^Message 1 {NEEDS_KEYS} 'role': rename",
        ),
        ([{"role": "user", "content": 42}], "^The content of message 1 of prompt 2 is 42: give a text"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "\n" * 999}]}],
            "^The content of message 1 .* give a text",
        ),
        ([{"role": "user", "content": "hi"}, {"role": "user", "content": 1.5}], "message 2 of prompt 2 is 1.5: give a"),
        (None, "^Prompt 2 is None: give a text, or a list of messages"),
        (42, "^Prompt 2 is 42: give a text, or a list of messages"),
        (b"hi", "^Prompt 2 is b'hi': give a text, or a list of messages"),
        (
            [{"role": "user", "content": "hi"}, {"role": "system", "content": "Be brief."}],
            r"^The chat template cannot render prompt 2 \(Roles are a first system .* got 'system'\): change its",
        ),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_messages_of_another_form(engine, refused, prompts, prompt, words):
    """Messages of another data set were called empty, and a text among them ended in a template's inner error."""
    refused(words, [prompts[0], prompt, prompts[1]], SamplingParams(2))
    with pytest.raises(UserError, match="the prompt|The prompt") as caught:
        engine.prompt_length(prompt)
    assert one_sentence(caught.value)


def test_messages_may_have_more_keys(engine):
    """A table gives every message of a column the keys of all, None where one has no value."""
    plain = [{"role": "system", "content": ""}, {"role": "user", "content": "hi"}]
    wider = [{**message, "thinking": None, "tool_calls": None, "name": None} for message in plain]
    assert engine.prompt_length(wider) == engine.prompt_length(plain)


def test_a_prompt_that_leaves_no_room(engine, refused, prompts):
    """Cut off at the end of the cache, the completion would be shorter than asked and look as if it were whole."""
    length = engine.prompt_length(prompts[0])
    room = engine.max_length - length
    engine.generate([prompts[0]], SamplingParams(room, stop_token_ids=range(832)))  # to the last place
    words = f"Prompt 2 of {length} tokens and max_new_tokens={room + 1} exceed the engine's max_length=1024"
    refused(words, ["hi", prompts[0]], SamplingParams(room + 1))


@pytest.mark.parametrize("count", [0, -1, 1.5, "2", None, True], ids=repr)
def test_a_number_of_generations_that_is_none(refused, prompts, count):
    """`True` is 1 to Python."""
    refused("num_generations must be a whole number from 1 on; got", prompts, SamplingParams(2), num_generations=count)


def test_a_stop_token_that_the_vocabulary_lacks(refused, prompts, tokenizer):
    """It can never be drawn, so the completions would all run to their full length."""
    params = SamplingParams(2, stop_token_ids=(5, len(tokenizer)))
    refused(f"stop_token_ids holds {len(tokenizer)}, and the vocabulary ends at {len(tokenizer) - 1}", prompts, params)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"backend": "vllm"}, "backend must be auto, captured, transformers or an object; got 'vllm'"),
        ({"backend": "Captured"}, "backend must be"),
        ({"max_batch_size": 0}, "max_batch_size must be a whole number from 1 on; got 0"),
        ({"max_batch_size": 2.0}, "max_batch_size must be"),
        ({"max_length": 0}, "max_length must be"),
        ({"max_length": "1024"}, "max_length must be"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_an_engine_that_cannot_be_made(make_engine, settings, words):
    """Else the slip shows at the first rollout, after the model was loaded and the data set was made."""
    with pytest.raises(UserError, match=words) as caught:
        make_engine(**settings)
    assert one_sentence(caught.value)


@pytest.fixture(scope="module")
def stock(loaded):
    """A model of transformers' own, with experts that the decoding step does not know."""
    config = copy.deepcopy(loaded[0].config)
    config.num_hidden_layers = 2
    config.layer_types = config.layer_types[:2]
    torch.manual_seed(0)
    return GptOssForCausalLM(config).eval()


def test_a_model_that_the_step_cannot_run(stock, tokenizer, make_engine, prompts):
    """ "auto" takes transformers' `generate` for it; who asks for "captured" is told why not, and what to do."""
    engine = make_engine(stock)
    assert isinstance(engine.backend, TransformersBackend)
    assert len(engine.generate(prompts[:2], SamplingParams(3))) == 2
    with pytest.raises(UserError, match="its experts are transformers' own: load it with load_model") as caught:
        make_engine(stock, backend="captured").generate(prompts[:2], SamplingParams(3))
    assert one_sentence(caught.value) and 'backend="transformers"' in str(caught.value)


def test_auto_is_captured_where_it_can_be(model, make_engine):
    """A model that is refused by mistake is a rollout at half the speed, without a word."""
    assert isinstance(make_engine().backend, CapturedBackend)
    assert isinstance(make_engine(backend="captured").backend, CapturedBackend)
    assert isinstance(make_engine(backend="transformers").backend, TransformersBackend)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_logits_that_are_not_numbers(loaded, make_engine, prompts, temperature, top_p):
    """A diverged adapter: a token of garbage and a log-probability of NaN would go into the next gradient."""
    model = copy.deepcopy(loaded[0])
    with torch.no_grad():
        model.lm_head.weight[700] = math.nan
    with pytest.raises(UserError, match=r"logits are not numbers \(NaN\)") as caught:
        make_engine(model).generate(prompts[:2], SamplingParams(5, temperature, top_p=top_p))
    assert one_sentence(caught.value)


def test_what_was_not_a_number_does_not_stay(loaded, make_engine, prompts):
    """An adapter that was mended, or loaded again: a value of NaN in the cache, times a weight of 0, is NaN."""
    model = copy.deepcopy(loaded[0])
    engine = make_engine(model)
    params = SamplingParams(30)
    wanted = engine.generate(prompts, params)
    norm = model.model.layers[1].input_layernorm.weight
    before = norm.detach().clone()
    with torch.no_grad():
        norm.fill_(math.nan)
    with pytest.raises(UserError, match="not numbers"):
        engine.generate(prompts, params)
    with torch.no_grad():
        norm.copy_(before)
    assert engine.generate(prompts, params) == wanted
