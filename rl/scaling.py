"""How long a rollout step takes on many GPUs, and how to divide them between trainers, rollout workers and a patient.

    learn     = operations of all passes / (trainers x peak x share), or what FSDP sends, if that takes longer
    rollout   = one wave of episodes after another; the last is as long as the longest episode
    episode   = turns x (sampled tokens x decoding step + reading what is new + the patient's reply, made alike)
    hand over = weights in bfloat16 / rate
    step      = rollout + learn + hand over, in turns;   max(rollout, learn) + hand over, one step ahead

Arithmetic on a card's data sheet and on rates that were published or measured (docs/scaling.md says which, and what it
was held against); no part of it is a measurement of this program on a GPU. Attention's own operations are left out: at
2,000 tokens they are below a tenth. Seconds, bytes and operations a second throughout.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

HALF, FULL = 2, 4  # bytes of a number in bfloat16 and float32
KEPT_SHARE = 0.85  # of a card's memory that can be planned with
GRAINS = 64  # divisions of many cards that are looked at, for each role


@dataclass(frozen=True, kw_only=True)
class Card:
    """A GPU by its data sheet: dense bfloat16 operations a second, bytes, bytes a second."""

    operations: float
    memory: float
    bandwidth: float  # of its memory
    link: float  # to the others of its machine, one way
    network: float  # its share of the machine's network
    a_machine: int = 8  # so many share a machine


CARDS: Mapping[str, Card] = MappingProxyType(
    {
        "a100": Card(operations=312e12, memory=80e9, bandwidth=2.0e12, link=300e9, network=25e9),
        "h20": Card(operations=148e12, memory=96e9, bandwidth=4.0e12, link=450e9, network=50e9),
        "h100": Card(operations=989e12, memory=80e9, bandwidth=3.35e12, link=450e9, network=50e9),
        "h200": Card(operations=989e12, memory=141e9, bandwidth=4.8e12, link=450e9, network=50e9),
    }
)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What is reached of a card; docs/scaling.md says by whom."""

    learn_share: float = 0.15  # of its operations, in training
    read_share: float = 0.8  # of its memory's bandwidth, in decoding
    feed_share: float = 0.4  # of its operations, in decoding and in reading what is new
    launch_s: float = 0.004  # of every decoding step, whatever it computes
    hand_over: float = 8e9  # bytes a second, from trainers to all engines
    learned: float | None = None  # tokens a second of one card, all passes over them, where that was measured
    sampled: float | None = None  # tokens a second that one card samples in a rollout, where that was measured


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Cards of one kind, and what is reached of them."""

    cards: int
    card: Card
    rates: Rates = Rates()


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """A language model by its size."""

    parameters: float
    cached: int  # numbers of the key-value cache a token: layers x 2 x key-value heads x head width

    @property
    def weights(self) -> float:
        """Bytes in an engine."""
        return HALF * self.parameters


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a step plays and learns."""

    episodes: int
    turns: float  # of a mean episode
    longest_turns: float
    opening_tokens: float
    turn_tokens: float  # sampled
    reply_tokens: float
    slots: int  # episodes at once in an engine
    passes: float  # of forward over every token in learning; a backward pass counts as two
    gathers: float  # times that FSDP collects all weights, for every micro-batch and in all epochs
    reduces: float  # times that it sums all gradients
    micro_batch_tokens: int
    patient_s: float = 0.0  # of a reply, where the patient is not ours to place

    @property
    def length(self) -> float:
        """Tokens of a mean episode."""
        return self.opening_tokens + self.turns * (self.turn_tokens + self.reply_tokens)

    @property
    def tokens(self) -> float:
        """Of all episodes."""
        return self.episodes * self.length


@dataclass(frozen=True, kw_only=True)
class Step:
    """A division of the cards, and what a step takes with it."""

    trainers: int
    rollout_workers: int
    patients: int
    ahead: bool
    rollout_s: float
    learn_s: float
    hand_over_s: float
    sent: float  # bytes a second that a trainer has to send and to get so that learning does not wait

    @property
    def seconds(self) -> float:
        """Of a step, validation and checkpoints apart."""
        both = max(self.rollout_s, self.learn_s) if self.ahead else self.rollout_s + self.learn_s
        return both + self.hand_over_s

    @property
    def trainers_wait(self) -> float:
        """Share of a step in which no trainer learns."""
        return 1 - self.learn_s / self.seconds

    @property
    def players_wait(self) -> float:
        """Share of a step in which no episode is played."""
        return 1 - self.rollout_s / self.seconds


def decoding_s(model: Decoder, fleet: Fleet, batch: float, context: float, shared: int = 1) -> float:
    """One token for each of a batch of sequences of so many tokens, on so many cards that share the model."""
    card, rates = fleet.card, fleet.rates
    read = model.weights + batch * context * HALF * model.cached
    computed = 2 * model.parameters * batch
    busy = max(read / (card.bandwidth * rates.read_share), computed / (card.operations * rates.feed_share))
    return busy / shared + rates.launch_s


def saying_s(
    model: Decoder, fleet: Fleet, batch: float, context: float, *, said: float, new: float, shared: int = 1
) -> float:
    """A turn of `said` tokens after reading `new` ones, beside a batch of others that do the same."""
    read = batch * 2 * model.parameters * new / (fleet.card.operations * fleet.rates.feed_share * shared)
    return said * decoding_s(model, fleet, batch, context, shared) + read


def cards_of(model: Decoder, card: Card) -> int:
    """Cards that have to share an engine's weights, with as much room for its cache: a power of two."""
    return int(2 ** max(0, math.ceil(math.log2(2 * model.weights / (KEPT_SHARE * card.memory)))))


def rollout_s(
    work: Work, doctor: Decoder, fleet: Fleet, players: int, patient: Decoder | None = None, patients: int = 0
) -> float:
    """All episodes, on so many of the cards; the patient, if it is a model of ours, on others."""
    if fleet.rates.sampled is not None:
        return work.episodes * work.turns * work.turn_tokens / (players * fleet.rates.sampled)
    card, shared = fleet.card, cards_of(doctor, fleet.card)
    engines = players // shared
    room = KEPT_SHARE * card.memory * shared - doctor.weights
    fits = max(1.0, room / (work.length * HALF * doctor.cached))
    batch = min(work.slots, work.episodes / engines, fits)
    new = work.opening_tokens / work.turns + work.reply_tokens
    turn_s = saying_s(doctor, fleet, batch, work.length / 2, said=work.turn_tokens, new=new, shared=shared)
    turn_s += work.patient_s
    if patient is not None:
        sharing = cards_of(patient, card)
        asked = batch * engines / (patients // sharing)
        turn_s += saying_s(
            patient, fleet, asked, work.length, said=work.reply_tokens, new=work.turn_tokens, shared=sharing
        )
    waves = max(1.0, work.episodes / (engines * batch))
    return turn_s * (work.turns * (waves - 1) + work.longest_turns)


def learn_s(work: Work, doctor: Decoder, fleet: Fleet, trainers: int) -> tuple[float, float]:
    """All passes over all tokens; and the bytes a second that each trainer has to move so that they do not wait."""
    card = fleet.card
    rate = trainers * card.operations * fleet.rates.learn_share
    computed = 2 * doctor.parameters * work.passes * work.tokens / rate
    if fleet.rates.learned is not None:
        computed = work.tokens / (trainers * fleet.rates.learned)
    if trainers == 1:
        return computed, 0.0
    micro_batches = max(1.0, work.tokens / trainers / work.micro_batch_tokens)
    moved = micro_batches * doctor.parameters * (HALF * work.gathers + FULL * work.reduces) * (1 - 1 / trainers)
    return max(computed, moved / between(card, trainers)), moved / computed


def between(card: Card, trainers: int) -> float:
    """Bytes a second at which so many cards speak with each other."""
    return card.link if trainers <= card.a_machine else card.network


def least_trainers(state: float, card: Card) -> int:
    """Cards that bytes of weights, gradients and moments need."""
    return max(1, math.ceil(state / (KEPT_SHARE * card.memory)))


def steps(
    work: Work, doctor: Decoder, fleet: Fleet, state: float, patient: Decoder | None = None, *, ahead: bool = False
) -> Iterator[Step]:
    """What every division that fits takes.

    Args:
        work: of a step.
        doctor: that learns.
        fleet: the cards.
        state: bytes of weights, gradients and moments that the trainers divide.
        patient: placed on cards of its own, in engines of as many as it needs.
        ahead: whether the next step is played while this one is learned from.
    """
    cards, card = fleet.cards, fleet.card
    grain = max(1, cards // GRAINS)
    engine, voice = cards_of(doctor, card), cards_of(patient, card) if patient is not None else 0
    for patients in range(voice * grain, cards, voice * grain) if voice else (0,):
        for players in range(engine * grain, cards - patients - least_trainers(state, card) + 1, engine * grain):
            learned, sent = learn_s(work, doctor, fleet, cards - patients - players)
            yield Step(
                trainers=cards - patients - players,
                rollout_workers=players // engine,
                patients=patients,
                ahead=ahead,
                rollout_s=rollout_s(work, doctor, fleet, players, patient, patients),
                learn_s=learned,
                hand_over_s=doctor.weights / fleet.rates.hand_over,
                sent=sent,
            )
