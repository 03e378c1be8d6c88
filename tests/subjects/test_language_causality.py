"""What stands behind an answer reaches it nowhere; models where it would are refused."""

import pytest
import torch

pytest.importorskip("transformers")

from tiny_language import FAMILIES, LLAMA, WINDOWED, settings_of, untrained, write_rows

from recunlearn.foundation.errors import TraceError, UsageError
from recunlearn.subjects.contract import Batch
from recunlearn.subjects.tofu.data import read_rows
from recunlearn.subjects.tofu.model import context_of, refuse_reading_ahead
from recunlearn.subjects.tofu.store import untrained_subject

MODELS = {**FAMILIES, **{f"{name} with a window": values for name, values in WINDOWED.items()}}
BERT = {k: v for k, v in LLAMA.items() if k not in ("num_key_value_heads", "tie_word_embeddings")}
LONG = {
    **LLAMA,
    "model_type": "phi3",
    "pad_token_id": 0,
    "original_max_position_embeddings": 48,
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 10_000.0,
        "short_factor": [1.0] * 4,
        "long_factor": [4.0] * 4,
        "original_max_position_embeddings": 48,
    },
}


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_a_row_alone_is_as_likely_as_among_others(kind, tmp_path):
    """Row by row, with an attention mask and nothing behind it; then with noise behind all of them."""
    subject = untrained(tmp_path, settings_of(MODELS[kind]), count=6)
    with torch.no_grad():
        for p in subject.model.parameters():  # as initialised, attention is too weak to show a difference
            p.mul_(3.0) if p.dim() > 1 else None
        batch = next(subject.batches(batch_size=6))
        found, tokens = subject.log_likelihood(subject.model, batch), batch.columns["tokens"]
        length = batch.columns["length"]
        assert len(set(length.tolist())) > 1
        for n in range(6):
            start, end = int(batch.columns["prompt"][n]), int(length[n])
            ids = tokens[n : n + 1, :end]
            own = subject.model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0].log_softmax(1)
            steps = [own[t - 1, ids[0, t]].item() for t in range(start, end)]
            assert found[n].item() == pytest.approx(sum(steps) / len(steps), abs=1e-5)
        noise = torch.randint(0, 300, (6, 64), generator=torch.Generator().manual_seed(0))
        noise[:, : tokens.shape[1]] = torch.where(
            torch.arange(tokens.shape[1]) < length[:, None], tokens, noise[:, : tokens.shape[1]]
        )
        filled = Batch({**batch.columns, "tokens": noise}, batch.entity)
        torch.testing.assert_close(subject.log_likelihood(subject.model, filled), found, atol=1e-5, rtol=1e-5)
    refuse_reading_ahead(subject.model)


def test_a_model_that_reads_ahead_is_refused_before_it_is_trained(tmp_path):
    rows = read_rows(["own.csv"], write_rows(tmp_path, 4).parent)
    with pytest.raises(UsageError, match=r"BertLMHeadModel reads tokens that follow.* Choose a causal model"):
        untrained_subject(rows, settings_of({**BERT, "model_type": "bert"}))


def test_two_sets_of_rotations_have_the_context_of_the_first(tmp_path):
    """One row that is too long for it would turn the tokens of every row of its batch by other angles."""
    subject = untrained(tmp_path, settings_of(LONG), count=2)
    assert context_of(subject.model) == 48
    assert max(subject.encoded.length) <= 48
    tokens = torch.arange(1, 41)[None]
    with torch.no_grad():
        alone, short, long = (
            subject.model(input_ids=torch.nn.functional.pad(tokens, (0, more))).logits[0, :40]
            for more in (0, 8, 9)
        )
    torch.testing.assert_close(short, alone, atol=1e-6, rtol=1e-5)
    assert (long - alone).abs().max() > 1e-4
    assert context_of(untrained(tmp_path, settings_of(), count=2).model) == 64


@pytest.mark.parametrize(
    "kind",
    [{"model_type": "bloom", "n_layer": 2, "n_head": 4}, {"model_type": "mpt", "n_layers": 2, "n_heads": 4}],
)
def test_a_stream_that_is_added_inside_an_mlp_is_no_circuit(kind, tmp_path):
    subject = untrained(tmp_path, settings_of({**kind, "hidden_size": 32}), count=4)
    with pytest.raises(TraceError, match="adds the residual stream inside"):
        subject.hints()
