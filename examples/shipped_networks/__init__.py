"""Trains the small networks that fdgpriv ships."""
