"""The sampling noise: splitmix64, bit for bit."""

import torch

from rl.engines.base import noise_key, uniform

WORD = 2**64 - 1


def splitmix64(key: int, place: int) -> float:
    """Output number `place` of splitmix64 seeded with `key`, top 53 bits as a fraction: arbitrary-precision integers,
    masked.
    """
    z = (key + (place + 1) * 0x9E3779B97F4A7C15) & WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return ((z ^ (z >> 31)) >> 11) / 2**53


def signed(key: int) -> int:
    return key - 2**64 if key >= 2**63 else key


def test_the_reference_is_the_published_generator():
    """First outputs for seed 1234567, as in Rosetta Code's and Vigna's splitmix64.c."""
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert [splitmix64(1234567, place) for place in range(5)] == [(x >> 11) / 2**53 for x in published]


def test_uniform_is_splitmix64():
    keys = [0, 1, 2**63 - 1, 2**63, WORD, *(noise_key("run", i) for i in range(50))]
    cases = [(key, place) for key in keys for place in (0, 1, 2, 1299, 2**31)]
    key_B = torch.tensor([signed(key) for key, _ in cases])
    place_B = torch.tensor([place for _, place in cases])
    noise_B = uniform(key_B, place_B)
    assert noise_B.dtype == torch.float64
    assert noise_B.tolist() == [splitmix64(key, place) for key, place in cases]


def test_the_noise_looks_uniform_and_independent():
    """200 keys x 500 places: mean, variance, deciles, and no correlation between neighbours either way."""
    key_K = torch.tensor(
        [
            signed(noise_key(7, step, "case", sample, turn))
            for step in range(5)
            for sample in range(20)
            for turn in range(2)
        ]
    )
    noise_KP = uniform(key_K.repeat_interleave(500), torch.arange(500).repeat(len(key_K))).view(len(key_K), 500)
    count = noise_KP.numel()
    assert 0 <= float(noise_KP.min()) < 1e-3
    assert 1 - 1e-3 < float(noise_KP.max()) < 1
    assert abs(float(noise_KP.mean()) - 1 / 2) < 4 * (1 / 12 / count) ** 0.5
    assert abs(float(noise_KP.var()) - 1 / 12) < 4 * (1 / 180 / count) ** 0.5
    deciles = torch.histc(noise_KP, 10, 0, 1) / count
    assert float((deciles - 0.1).abs().max()) < 4 * (0.09 / count) ** 0.5
    centred_KP = noise_KP - 0.5
    for shifted in (centred_KP[:, 1:] * centred_KP[:, :-1], centred_KP[1:] * centred_KP[:-1]):
        assert abs(float(shifted.mean()) * 12) < 4 * shifted.numel() ** -0.5


def test_a_noise_key_tells_all_its_parts_apart():
    parts = [
        ("r", 1, "c", 0, 0),
        ("r", 1, "c", 0, 1),
        ("r", 1, "c", 1, 0),
        ("r", 2, "c", 0, 0),
        ("s", 1, "c", 0, 0),
        ("r", 11, "c", 0),
        ("r", 1, "1c", 0),
    ]
    keys = [noise_key(*p) for p in parts]
    assert len(set(keys)) == len(keys)
    assert all(0 <= key < 2**64 for key in keys)
    assert noise_key(0, 1, "case", 2, 3) == 529439418361356020  # stored runs resume with the same noise
