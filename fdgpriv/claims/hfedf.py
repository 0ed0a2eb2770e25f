"""What the hFedF paper claims."""

from .hypothesis import Case, Decision, Hypothesis, needs, no_leak_by


def _key(case: Case) -> Decision:
    if not any(row.artifact.startswith("client_embedding") for row in case.attacks):
        return Decision(
            "undecided", "not measured: needs embeddings, which cross only with --set embedding=autoencoder"
        )
    return no_leak_by("domain_inference", "label_histogram", on=("client_embedding",))(case)


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
        needs(
            "federations trained with and without the domain: 20 seeds of each, twenty audits of --target all --attack none"
        ),
    ),
    Hypothesis(
        "H-H3",
        "client embeddings do not contain sensitive information that could be misused",
        "domain mix, label histogram and size from learned embeddings",
        needs(
            "the embeddings of some 30 federations of one kind, to learn a probe across them: 30 seeds at the default preset"
        ),
    ),
    Hypothesis(
        "H-H4",
        "client embeddings do not contain sensitive information that could be misused",
        "membership with random against learned embeddings",
        needs("the membership rows of two runs, --set embedding=learned and --set embedding=random, at 3 seeds each"),
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
        needs("the variant that sends the hypernetwork to its clients (App. C.3), which is not built"),
    ),
    Hypothesis(
        "H-H7",
        "an autoencoder's embedding of a client's data as its key",
        "images, domain and labels from the embedding",
        _key,
    ),
)
