"""What a question asks for and what a fact of a record tells: by type (since when, how bad, family, medicines ...) and by
meaning (lay and clinical words for the same thing).

`lexicon` reads a text, `record` types the facts of a case once, `matcher` finds the fact that answers a question.
"""
