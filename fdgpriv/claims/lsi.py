"""Privacy and cost claims of the LSI paper (Palakkadavath et al., latent space inversion)."""

from fdgpriv.claims.by_attack import DESIGN, OF_THE_FIELD, measured_by, no_leak_by
from fdgpriv.claims.claim_test import Case, ClaimRule, ClaimTest, Decision, interval, needs
from fdgpriv.claims.findings import IMAGES
from fdgpriv.claims.layers import head_insufficient, one_layer_insufficient
from fdgpriv.claims.overhead import less_overhead
from fdgpriv.claims.wire import no_data_crosses, statistics_layers, uploads
from fdgpriv.statistics.interval import Interval


def _where_trained(rule: ClaimRule) -> ClaimRule:
    """Restricts `rule` to runs whose heads and translator learned what they are for; otherwise undecided."""

    def decide(case: Case) -> Decision:
        decision = rule(case)
        if decision.verdict == "undecided" or case.training_warning is None:
            return decision
        return Decision("undecided", case.training_warning, decision.evidence)

    return decide


def _partial(case: Case) -> Decision:
    """Layers with statistics, heads and models in clients' uploads, over all stages."""
    layers = statistics_layers(case)
    if not uploads(case):
        return Decision("undecided", "not measured: no artifacts were shared")
    evidence = (
        f"running statistics of {layers} BatchNorm layers in clients' uploads, over all stages",
        f"{len(uploads(case, 'classifier_head'))} heads and {len(uploads(case, 'model_state'))} models uploaded",
    )
    return Decision("undecided", f"{DESIGN}: it holds of stage 2; stage 5 uploads the models in each round", evidence)


_ACCURATE = 0.25  # relative error below which statistics count as accurate estimates of the moments
_NEARER = 0.05  # precision above that of noise
_CLOSE = 0.5  # precision from which synthesised latents count as quite close: half of them lie among real ones


def _resemble(case: Case) -> Decision:
    if "latent_precision" not in case.facts:
        return Decision("undecided", "not measured: no classifier heads were shared")
    figures = {
        name: interval(case.facts, name)
        for name in ("latent_precision", "latent_recall", "noise_precision", "noise_recall", "latent_gain")
    }
    evidence = (
        f"synthesised latents among real ones, {case.facts['latent_precision_n']:g} clients: "
        f"precision {figures['latent_precision']}, recall {figures['latent_recall']}",
        f"N(0, 1) among real ones: precision {figures['noise_precision']}, recall {figures['noise_recall']}",
        f"precision above N(0, 1)'s: {figures['latent_gain']}",
    )
    if case.facts.get("latent_gain_high", 1.0) <= _NEARER:
        return Decision(
            "refuted", "synthesised latents are no nearer to real ones than noise, at these settings", evidence
        )
    if case.facts.get("latent_gain_low", 0.0) <= _NEARER:
        reason = (
            "inconclusive: whether synthesised latents are nearer to real ones than noise; more clients would decide"
        )
        return Decision("undecided", reason, evidence)
    if case.facts.get("latent_precision_low", 0.0) < _CLOSE:
        reason = "inconclusive: nearer to real ones than noise is; that half of them lie among these is not established"
        return Decision("undecided", reason, evidence)
    return Decision("supported", "synthesised latents lie among real ones, and noise does not", evidence)


def _withheld(case: Case) -> Decision:
    if "latent_mean_error" not in case.facts:
        return Decision("undecided", "not measured: no classifier heads were shared")
    errors = ("latent_mean_error", "latent_var_error")
    mean, variance = (interval(case.facts, name) for name in errors)
    evidence = (
        f"relative error of the statistics, {case.facts['latent_mean_error_n']:g} clients: mean {mean}, variance {variance}",
    )
    if all(case.facts.get(f"{name}_high", 1.0) < _ACCURATE for name in errors):
        return Decision("refuted", "the uploaded statistics are accurate estimates of those moments", evidence)
    reason = "running averages lag behind an encoder that still changes; a larger pretrain_epochs would decide"
    return Decision("undecided", reason, evidence)


def _translated(case: Case) -> Decision:
    if "translation_gain" not in case.facts:
        return Decision("undecided", "not measured: no translator was shared")
    f = case.facts
    low = f.get("translation_gain_low")
    evidence = (
        f"distance to the true moments of another client: latents translated to it {f['translated_error']:.2f}, untranslated "
        f"{f['untranslated_error']:.2f}, translated to other clients {f['elsewhere_error']:.2f}",
        f"gain over the better of the two controls: {interval(f, 'translation_gain')}",
    )
    if low is not None and low > 0:
        reason = "translated latents are nearer to another client's than both controls"
        return Decision("refuted", reason, evidence, Interval.read(f, "translation_gain").p_above(), leak=True)
    reason = (
        "translated latents are no nearer to the client's than the controls, but no positive control says they could be"
    )
    return Decision("undecided", reason, evidence)


CLAIM_TESTS = (
    ClaimTest(
        "Stage 2",
        "we require local models to share only a partial set of their parameters with the server",
        "BatchNorm layers whose running statistics are uploaded over all stages, and models uploaded",
        _partial,
        "design",
    ),
    ClaimTest(
        "H-L1",
        "this single layer of the model alone is insufficient to reconstruct images",
        "inversion of the classifier head alone",
        _where_trained(head_insufficient),
    ),
    ClaimTest(
        "H-L2",
        "The knowledge of the batch normalization statistics from a single layer is insufficient for model inversion",
        "inversion from the head's BatchNorm statistics, and from those of one layer of a model",
        _where_trained(one_layer_insufficient),
    ),
    ClaimTest(
        "all layers",
        "Exposing batch normalization statistics from every layer of the model makes it vulnerable to model inversion attacks",
        "inversion of the models with statistics of all layers, which LSI's clients upload as well",
        no_leak_by("deep_inversion", leak="supported", on=("model_state",), secret=IMAGES, matters=True),
    ),
    ClaimTest(
        "H-L3",
        "the synthetic representations are quite close to the originals in the latent space",
        "precision and recall of inverted latents against real ones, compared with noise",
        _where_trained(_resemble),
    ),
    ClaimTest(
        "H-L4",
        "can be pooled together to learn domain invariance between clients without compromising client privacy",
        "label histogram and domain from the head and its statistics, of which the representations are synthesised",
        _where_trained(no_leak_by("label_histogram", "domain_inference", on=("classifier_head",), broad=True)),
    ),
    ClaimTest(
        "H-L5",
        "generalizes to unseen clients while preserving data privacy",
        "membership and label histogram from importance weights",
        measured_by("importance_membership", "label_histogram", on=("importance_weights",), reason=OF_THE_FIELD),
        "design",
    ),
    ClaimTest(
        "H-L6",
        "without compromising client privacy",
        "whether a client took part, from the translator",
        needs("translators of federations with and without a client: 20 of each, about 20 s of stages 2 and 3 for one"),
    ),
    ClaimTest(
        "H-L7",
        "are not available at the server. So, we replace them with the batch normalization statistics from the only "
        "classifier layer",
        "error of the uploaded BatchNorm statistics against the true moments of z",
        _where_trained(_withheld),
    ),
    ClaimTest(
        "H-L8",
        "jeopardize privacy by sharing statistics of client data between themselves. Our solution addresses this problem",
        "another client's latent moments from the translator that each client is sent",
        _where_trained(_translated),
    ),
    ClaimTest(
        "abstract",
        "enables better client privacy",
        "the same secrets from what LSI's clients share and from what those of the methods it is compared with share",
        needs("a common measure of leakage from different artifacts, which no paired comparison of two methods gives"),
    ),
    ClaimTest(
        "messages",
        "without sharing actual client data",
        "whether anything that clients send is an image, or as much as one",
        no_data_crosses,
    ),
    ClaimTest(
        "H-L9",
        "less communication overhead",
        "bytes of a client in each direction, importance weights included, over the rounds of Table V, against FedDG-GA and "
        "gPerXAN",
        less_overhead,
    ),
)
