"""Sentences of remarks: one for each code, as a template over its figures or a function of them.

Templates are those of ``str.format`` with formats of their own (``formats``).
"""

from app.presentation.sentences.rendering import has_words, sentence, sentences

__all__ = ["has_words", "sentence", "sentences"]
