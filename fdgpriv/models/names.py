"""The names of the backbones, importable without torch."""

BACKBONES = ("small_resnet", "resnet18", "resnet50", "alexnet", "densenet121")
