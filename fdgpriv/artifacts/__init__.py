"""The kinds of artifact that cross a trust boundary."""
