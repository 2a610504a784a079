"""Which topic does a question ask about: free text in, meaning out.

Lexical: exact after normalisation first, then the share of rare words in common (TF-IDF cosine over words and
character trigrams, so that scripts without spaces work too).
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from clinic.simplified import simplified

Embed = Callable[[Sequence[str]], NDArray[np.float32]]
"""Texts to unit vectors, float32 (n, D)."""
MATCH_THRESHOLD = 0.4  # chosen on the open half of data/calibration/questions
_WORD = re.compile(r"[^\W_]+")
_FILLER_WORDS = (
    "a an the do does did you your are is was were have has had been be of in on at to or and any with it that this "
    "when do feel felt get got notice noticed ever there i my me can could would please tell about"
)
_FILLERS = frozenset(_FILLER_WORDS.split())
_FILLER_CHARACTERS = frozenset("你您我他她的了吗呢吧啊有没是不会在和或与也都很最近时候觉得感到什么样")
# whose illness is another's: "does your mother have a fever" asks for nothing that a patient's own fever answers
_OTHERS = re.compile(
    r"\b(?:do|does|did|has|have|is|are|was|were|can|anyone|anybody|someone|somebody) (?:in )?(?:your|the) (?:own |whole )?"
    r"(mother|mum|mom|father|dad|parents?|brothers?|sisters?|siblings?|wife|husband|son|daughter|uncle|aunt|cousin"
    r"|grand(?:mother|father|parents?)|relatives?|family|neighbou?r|colleague|friends?|dog|cat|pet)\b"
    r"|[您你]的?(母亲|妈妈|父亲|爸爸|父母|爷爷|奶奶|外公|外婆|兄弟|姐妹|哥哥|弟弟|姐姐|妹妹|妻子|丈夫|老公|老婆|儿子|女儿|家人|家里人|邻居|朋友|同事)"
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
_HAN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_RUN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]+|[^\W\u3040-\u30ff\u3400-\u9fff]+")


@lru_cache(maxsize=65536)
def normalise(text: str) -> str:
    """Lower-case words without punctuation, full-width forms and traditional characters folded."""
    return " ".join(_WORD.findall(simplified(unicodedata.normalize("NFKC", text)).lower()))


def _features(text: str) -> Counter[str]:
    """Content words, plus their character trigrams at a third of the weight each (for inflection).

    A run of Chinese characters has no words: its pairs of characters count like words, its characters like trigrams.
    """
    words: list[str] = []
    grams: list[str] = []
    for part in _RUN.findall(normalise(text)):
        if _HAN.match(part):
            words += [part[i : i + 2] for i in range(len(part) - 1)]
            grams += [f"#{character}" for character in part if character not in _FILLER_CHARACTERS]
        elif part not in _FILLERS:
            words.append(part)
            padded = f"^{part}$"
            grams += [f"#{padded[i : i + 3]}" for i in range(len(padded) - 2)]
    return Counter(words * 3 + grams)


def content_words(text: str) -> frozenset[str]:
    """The words of a text that carry meaning; of Chinese its pairs of characters."""
    return frozenset(feature for feature in _features(text) if not feature.startswith("#"))


def asks_of_others(text: str) -> bool:
    """Whether a question asks of somebody beside the patient."""
    return _OTHERS.search(normalise(text)) is not None


def _question_of(text: str) -> str:
    """The sentence with the last question mark, without what is said around it; all of a text that has none."""
    return next((part for part in reversed(_SENTENCE_END.split(text)) if part.endswith(("?", "？"))), text)


class TopicMatcher:
    """Finds the topic whose known wordings are nearest to a question."""

    def __init__(self, wordings: Mapping[str, Iterable[str]], threshold: float) -> None:
        """Index the wordings.

        Args:
            wordings: topic -> texts that ask for it or state it.
            threshold: least cosine in [0, 1] that counts as a match.
        """
        pairs = [(topic, text) for topic, texts in wordings.items() for text in texts]
        self._topics = [topic for topic, _ in pairs]
        self._exact = {normalise(text): topic for topic, text in pairs}
        self._threshold = threshold
        self._of_others = {topic for topic, text in pairs if asks_of_others(text)}
        counts = [_features(text) for _, text in pairs]
        document_frequency = Counter(feature for count in counts for feature in count)
        self._column = {feature: i for i, feature in enumerate(document_frequency)}
        self._idf = np.log((1 + len(pairs)) / (1 + np.array(list(document_frequency.values()), dtype=np.float64))) + 1
        self._unseen = float(np.log(1 + len(pairs))) + 1  # idf of what no wording has
        rows = [self._vector(count) for count in counts]
        self._matrix = np.stack(rows) if rows else np.zeros((0, 0), dtype=np.float32)

    def _vector(self, count: Counter[str]) -> NDArray[np.float32]:
        vector = np.zeros(len(self._column), dtype=np.float32)
        for feature, n in count.items():
            column = self._column.get(feature)
            if column is not None:
                vector[column] = n * self._idf[column]
        norm = float(np.linalg.norm(vector))
        return vector / norm if norm else vector

    def similarities(self, text: str) -> NDArray[np.float32]:
        """Cosine of a text to every known wording, in the order given."""
        return np.asarray(self._matrix @ self._vector(_features(text)))

    def match(self, text: str) -> str | None:
        """The topic asked about, or None when nothing known is near enough."""
        exact = self._exact.get(normalise(text))
        if exact is not None or not self._topics:
            return exact
        asked = _question_of(text)
        score = self.similarities(asked) * self._known_share(asked)
        best = int(score.argmax())
        if score[best] < self._threshold or (asks_of_others(text) and self._topics[best] not in self._of_others):
            return None
        return self._topics[best]

    def _known_share(self, text: str) -> float:
        """Of the length of a text's vector, what is left without the features that no wording has: at most 1."""
        known, unseen = 0.0, 0.0
        for feature, n in _features(text).items():
            column = self._column.get(feature)
            if column is None:
                unseen += (n * self._unseen) ** 2
            else:
                known += (n * float(self._idf[column])) ** 2
        return float(np.sqrt(known / (known + unseen))) if known else 0.0


class HybridMatcher:
    """Finds the topic by words and by sentence embeddings, against the ways in which doctors ask, and against questions
    that no topic answers.

    A question's similarity to a known one is `WORDS` x the lexical cosine + (1 - `WORDS`) x the cosine of the
    embeddings; a topic's is the mean of its `NEAREST` highest (`NEAREST_OFF` for those off the record, which have less
    in common). The nearest topic is meant, unless the questions off the record are nearer or it is below `LEAST`. The
    numbers were chosen on the open half of data/calibration; the sealed half measures them.
    """

    WORDS, NEAREST, NEAREST_OFF, LEAST = 0.2, 3, 2, 0.5

    def __init__(self, asking: Mapping[str, Iterable[str]], off_record: Iterable[str], embed: Embed) -> None:
        """Index the questions.

        Args:
            asking: topic -> questions that ask for it.
            off_record: questions that none of the topics answers.
            embed: texts to unit vectors, float32 (n, D).
        """
        pairs = [
            *((topic, text) for topic, texts in asking.items() for text in texts),
            *(("", text) for text in off_record),
        ]
        self._exact = {normalise(text): topic or None for topic, text in pairs}
        self._embed = embed
        self._lexical = TopicMatcher({str(i): (text,) for i, (_, text) in enumerate(pairs)}, 0.0)
        self._vectors = embed([text for _, text in pairs])
        self._topics = sorted({topic for topic, _ in pairs})
        self._rows = [np.array([i for i, (topic, _) in enumerate(pairs) if topic == name]) for name in self._topics]
        self._known: dict[str, str | None] = {}

    def match(self, text: str) -> str | None:
        """The topic asked about, or None when it is off the record or nothing known is near enough."""
        key = normalise(text)
        if key in self._exact:
            return self._exact[key]
        if key not in self._known:
            self._known[key] = self._nearest(text) if key else None
        return self._known[key]

    def _nearest(self, text: str) -> str | None:
        similarity = self.WORDS * self._lexical.similarities(text) + (1 - self.WORDS) * (
            self._vectors @ self._embed([text])[0]
        )
        score = [
            float(np.sort(similarity[rows])[-(self.NEAREST if topic else self.NEAREST_OFF) :].mean())
            for topic, rows in zip(self._topics, self._rows, strict=True)
        ]
        best = int(np.argmax(score))
        return self._topics[best] or None if score[best] >= self.LEAST else None
