import torch
from learner_fixtures import fresh_policy
from transformers import DynamicCache

from crbc_rl.policies.prefixes import ROOM, roomy_cache

TOKENS = torch.arange(2 * (ROOM + 20)).reshape(2, -1) % 50 + 5


def _read(cache: DynamicCache, pieces: list[torch.Tensor]) -> torch.Tensor:
    model = fresh_policy().model
    with torch.no_grad():
        return torch.cat([model(input_ids=piece, past_key_values=cache).logits for piece in pieces], dim=1)


def test_a_text_in_pieces_is_read_as_the_text_at_once() -> None:
    config = fresh_policy().model.config
    pieces = [TOKENS[:, :10], *TOKENS[:, 10:].split(1, dim=1)]  # more single tokens than there is room for
    cache = roomy_cache(config)
    assert torch.allclose(_read(cache, pieces), _read(DynamicCache(config=config), [TOKENS]), atol=1e-5)
    assert cache.get_seq_length() == TOKENS.shape[1]


def test_a_token_costs_no_copy_while_there_is_room() -> None:
    cache = roomy_cache(fresh_policy().model.config)
    _read(cache, [TOKENS[:, :10]])
    before = cache.layers[0].keys.data_ptr()
    _read(cache, [TOKENS[:, 10:11]])
    assert cache.layers[0].keys.data_ptr() == before
    assert cache.layers[0].keys.shape[-2] == 11


def test_rows_that_are_chosen_later_go_on_with_their_own_past() -> None:
    """The memory behind the chosen rows is that of all rows no more."""
    config = fresh_policy().model.config
    chosen, other = torch.tensor([1, 0, 1]), roomy_cache(config)
    _read(other, [TOKENS[:, :10], TOKENS[:, 10:11]])
    other.batch_select_indices(chosen)
    later = _read(other, [TOKENS[chosen, 11:12], TOKENS[chosen, 12:13]])
    whole = _read(DynamicCache(config=config), [TOKENS[chosen, :13]])
    assert torch.allclose(later, whole[:, 11:], atol=1e-5)
