"""Examinations: what adversaries are asked, what they may use, and how their guesses are marked."""

from .sitting import Asked, Guess, Item, Question, Sitting, Truth, View

__all__ = ["Asked", "Guess", "Item", "Question", "Sitting", "Truth", "View"]
