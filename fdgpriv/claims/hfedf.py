"""What the hFedF paper claims."""

from .hypothesis import Hypothesis, needs, no_leak_by

HYPOTHESES = (
    Hypothesis(
        "H-H1",
        "Compromising a client model does not expose information about other clients, as individual embeddings remain on "
        "the server and are not interpretable.",
        "membership of client j's images from client i's model, against FedAvg and Local-only",
        no_leak_by("membership", on=("global_model",), by=("client",)),
    ),
    Hypothesis(
        "H-H2",
        "Compromising a client model does not expose information about other clients",
        "whether a domain takes part, from one client's model",
        needs("membership over simulated federations"),
    ),
    Hypothesis(
        "H-H3",
        "client embeddings do not contain sensitive information that could be misused",
        "domain mix, label histogram and size from learned embeddings",
        needs("a probe of embeddings over federations"),
    ),
    Hypothesis(
        "H-H4",
        "client embeddings do not contain sensitive information that could be misused",
        "membership with random against learned embeddings",
        needs("runs with learned and with random embeddings side by side"),
    ),
    Hypothesis(
        "H-H5",
        "maintains the privacy through client-specific embeddings as a client identifier",
        "inversion of one client's update, against FedAvg's",
        no_leak_by("gradient_inversion"),
    ),
    Hypothesis(
        "H-H6",
        "ensures the server remains unaware",
        "the update and the embedding from the hypernetwork's gradient",
        needs("the variant that sends the hypernetwork to its clients, which is not built"),
    ),
    Hypothesis(
        "H-H7",
        "an autoencoder's embedding of a client's data as its key",
        "images, domain and labels from the embedding",
        needs("an attack on embeddings, which cross only with embedding=autoencoder"),
    ),
)
