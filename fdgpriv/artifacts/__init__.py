"""The kinds of artifact: data that clients and server exchange."""
