"""Networks: backbones, style codecs, extractors and generators."""
