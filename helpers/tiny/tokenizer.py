"""The embedded model's tokenizer: byte-level BPE with the Harmony tokens at the end."""

from pathlib import Path

VOCAB_SIZE = 832
#: The released tokenizer ends in these, from id 199,998 on; ours has them from VOCAB_SIZE - 16 on.
SPECIAL_TOKENS = {
    0: "<|startoftext|>", 1: "<|endoftext|>", 4: "<|return|>", 5: "<|constrain|>", 7: "<|channel|>",
    8: "<|start|>", 9: "<|end|>", 10: "<|message|>", 14: "<|call|>",
}  # fmt: skip
#: Words with their space, indentation with its newline, up to three digits, runs of punctuation.
SPLIT = r"\n *| ?[A-Za-z_]+|\d{1,3}| ?[^\sA-Za-z_\d]+|\s+"


def build_tokenizer(texts):
    """Train on `texts`; returns a `PreTrainedTokenizerFast` with the chat template set."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"), byte_level])
    bpe.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=VOCAB_SIZE - 16, initial_alphabet=alphabet, show_progress=False)
    bpe.train_from_iterator(texts, trainer)
    assert bpe.get_vocab_size() == VOCAB_SIZE - 16, "too little text to fill the vocabulary"
    bpe.add_special_tokens([SPECIAL_TOKENS.get(n, f"<|reserved_{n}|>") for n in range(16)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token="<|startoftext|>",
        eos_token="<|return|>",
        pad_token="<|endoftext|>",
        padding_side="left",
        model_input_names=["input_ids", "attention_mask"],
    )
    tokenizer.chat_template = Path(__file__).with_name("chat_template.jinja").read_text()
    return tokenizer
