"""`OODDetector`: network, method and calibration in one object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from adascale.core.displays import drawn
from adascale.core.engines import TORCH
from adascale.core.shards import Shards
from adascale.core.types import Outputs
from adascale.decision.audit import AuditEntry, fit_entry
from adascale.decision.detector_file import DetectorFile, NetworkIdentity, save_detector
from adascale.decision.exporting import exportable, pictures_of
from adascale.decision.fitting import Late, Outliers, Plan, method_of
from adascale.decision.inputs import Reader, extract_given, outliers_of, seen_again
from adascale.decision.provenance import fitting_record, source_in_words
from adascale.decision.quantising import quantised
from adascale.decision.recalibrating import Recalibrating
from adascale.decision.saved import classifier_of, load_detectors
from adascale.decision.tuning import MOST_CHOSEN, Tuning
from adascale.detectors import Detector
from adascale.export.early import Early
from adascale.export.formats import format_of
from adascale.export.proof import Proof
from adascale.export.writing import check_kind, export_detector
from adascale.images.outliers import Sample
from adascale.images.preprocess import Preprocess, as_preprocess
from adascale.maths.conformal import Calibration
from adascale.maths.promise import check_alpha, check_confidence
from adascale.network.class_names import check_count, class_names
from adascale.network.classifier import Classifier
from adascale.network.ready import ready_network
from adascale.network.specs import absolute
from adascale.storage.remote import Place

if TYPE_CHECKING:
    from typing_extensions import Self


class OODDetector(Recalibrating):
    """Tells which images a classifier was never trained on.

    For example:

        >>> detector = OODDetector(model).fit(id_images)
        >>> verdict = detector(images)
        >>> verdict.is_ood, verdict.p_value, verdict.prediction  # doctest: +SKIP
        >>> detector.guarantee.startswith("At most 5 % of fresh in-distribution images are flagged")
        True

    model: any ``nn.Module`` that returns logits (or a `Classifier`, which several detectors may share). method: a name
    (see ``adascale methods``) or a configured `Detector`; by default `combined`, which adds the evidence of AdaSCALE-L,
    fDBD, GEN and ViM. parameters: the method's own, by name, e.g. ``p_max=90,
    pixels="random"``. head: the name of the last linear layer, if it cannot be found. alpha: the share of
    in-distribution images that may be flagged, on average over draws of the calibration images. confidence: 0.95 makes
    that a promise for this one detector, which holds with 95 % confidence (see `Calibration`). split_seed: seed of the
    split into images to fit on and images that set the threshold. preprocess: how images become inputs (or a dict of
    its fields); it is kept with the detector and saved with it, and lets every method here take images: a path, a
    folder, a glob, a list of paths, Pillow images, uint8 arrays (H, W, C) or (N, H, W, C), bytes. Without it they take
    tensors. classes: the names of the classes, as a list, a mapping from index to name, or a file of either
    (`adascale.network.class_names`). engine: ``onnxruntime`` or ``openvino`` runs the network in place of torch (see
    `Classifier`).
    """

    def __init__(
        self,
        model: nn.Module | Classifier,
        method: str | Detector = "combined",
        *,
        head: str | None = None,
        alpha: float = 0.05,
        confidence: float | None = None,
        split_seed: int = 0,
        batch_size: int = 32,
        preprocess: Preprocess | Mapping[str, Any] | None = None,
        classes: str | Path | Sequence[str] | Mapping[Any, Any] | None = None,
        engine: str | None = None,
        **parameters: Any,
    ) -> None:
        check_alpha(alpha)
        check_confidence(confidence)
        preprocess = as_preprocess(preprocess)
        self.classifier = classifier_of(model, head, engine)
        self._method = method_of(method, parameters, preprocess)
        self._as_given = self._method
        self._given = frozenset(parameters if isinstance(method, str) else self._method.parameters)
        self.split_seed, self.batch_size, self.preprocess = split_seed, batch_size, preprocess
        self._alpha, self._confidence = alpha, confidence
        self.calibration: Calibration | None = None
        self.tuning: Tuning | None = None
        self.setting = "not fitted"  # where the parameters come from, in one sentence
        self.input_shape: tuple[int, ...] | None = None  # None: not known, or images of several sizes
        self.probe_shape: tuple[int, ...] | None = None  # that of the first images, for the probe in a detector file
        self.network = NetworkIdentity(self.classifier)
        self.reference_images = 0
        self.fitted: Mapping[str, Any] = {}  # when and on what, for people
        self.audit: tuple[AuditEntry, ...] = ()  # which images set the threshold
        self.calibration_classes: Tensor | None = None  # their predicted classes; None: not known
        self.class_names = self.classifier.class_names if classes is None else class_names(classes)
        self.about: dict[str, Any] = {}  # what `save` writes about the network: its text and its weights file
        self._reader = Reader()
        self._note_weights()

    @classmethod
    def from_spec(
        cls,
        spec: str,
        method: str | Detector = "combined",
        *,
        weights: str | Path | None = None,
        device: str = "auto",
        head: str | None = None,
        preprocess: Preprocess | Mapping[str, Any] | None = None,
        engine: str = TORCH,
        **options: Any,
    ) -> Self:
        """A detector for a network named by a text such as ``torchvision:resnet50``: see `load_network`.

        The network brings its preprocessing, and class names where its source knows them. weights: a file of your own.
        device: ``auto`` is a GPU where there is one. options: those of `OODDetector`, and the method's parameters.
        """
        classifier, known = ready_network(spec, weights, device, head, engine=engine)
        detector = cls(classifier, method, preprocess=preprocess or known, **options)
        detector.about = {"model": absolute(spec), "weights": None if weights is None else str(Path(weights).resolve())}
        return detector

    @property
    def method(self) -> Detector:
        """The method that gives the scores. A method that is assigned has to be fitted first."""
        return self._method

    @method.setter
    def method(self, method: Detector) -> None:
        self._method, self.calibration, self.tuning = method, None, None
        self.calibration_classes, self.audit = None, ()
        self._as_given, self._given = method, frozenset(method.parameters)

    @property
    def alpha(self) -> float:
        """The share of in-distribution images that may be flagged; assigning it moves the threshold."""
        return self._alpha

    @alpha.setter
    def alpha(self, alpha: float) -> None:
        check_alpha(alpha)
        self._alpha = alpha
        self._recalibrate()

    @property
    def confidence(self) -> float | None:
        """How sure the promise is for this one detector; None promises an average. Assigning it moves the threshold."""
        return self._confidence

    @confidence.setter
    def confidence(self, confidence: float | None) -> None:
        check_confidence(confidence)
        self._confidence = confidence
        self._recalibrate()

    def _recalibrate(self) -> None:
        if self.calibration is not None:
            self.calibration = Calibration(self.calibration.scores, self.alpha, self.confidence)

    def fit(self, images: Any, train: Any = None, *, tune: bool | None = None) -> Self:
        """Learn from in-distribution images: a folder, paths, tensors, a DataLoader and so on. No labels needed.

        Images that cannot be read are skipped, and a warning names them.

        ``train``: training images for the methods that learn from them, with labels if the method needs them (see
        ``adascale methods``). None of them may be among ``images``, which set the threshold. Without ``train`` such
        methods learn from one half of ``images``.

        ``tune``: whether to choose the method's parameters on outliers made from a part of the images (see
        `adascale.images.outliers`). None does so for AdaSCALE, alone or combined, if there are at least 64 images and
        its percentiles were not given; True does so for the search space of any method. ``detector.setting`` says what
        was done.
        """
        self._forget()
        self.input_shape = None
        plan = self.plan(tune)
        sample = Sample(self.split_seed, MOST_CHOSEN) if plan.wanted else None
        given = self._batches(images, skip=True)
        outputs, shapes, names = extract_given(given, self.classifier, plan.needs, self.class_names, sample)
        learned = None
        if train is not None and plan.takes_train:
            learned, *_ = extract_given(self._batches(train, skip=True), self.classifier, plan.taps)
        self.probe_shape, self.input_shape = shapes[0], shapes[0] if len(shapes) == 1 else None
        outliers = outliers_of(sample, self.classifier, self.batch_size)
        late = seen_again(lambda: self._batches(images, skip=True), self.classifier, outputs)
        about: dict[str, Any] = {"source": source_in_words(images), "names": names}
        return self.fit_outputs(outputs, learned, outliers, tune=tune, late=late, **about)

    def fit_outputs(
        self,
        outputs: Outputs,
        train: Outputs | Shards | None = None,
        outliers: Mapping[str, Outputs] | Outliers | None = None,
        *,
        tune: bool | None = None,
        source: str = "extracted outputs",
        names: Sequence[str] = (),
        late: Late | None = None,
    ) -> Self:
        """The same from extracted `Outputs`. What is fitted on, chosen on and what sets the threshold are kept apart.

        ``outliers``: the outputs of outliers made from the images ``plan(tune).chosen(len(outputs))``, by name, or a
        function that is given these indices and the views needed. Without outliers nothing is tuned. ``source``,
        ``names``: where the images come from and what they are called, for the record. ``late``: a function that is
        given indices of ``outputs`` and the views needed, and returns the outputs of these images with them; for
        methods whose views depend on what they learn (``mds_odin``), which are refused without it.
        """
        self._forget()
        check_count(self.class_names, len(self.classifier.head.weight))
        plan = self.plan(tune)
        provider = outliers if outliers is None or callable(outliers) else lambda *_: outliers
        fitted = plan.fit(outputs, self.classifier.head, train, provider, late)
        self._method, self.tuning, self.setting, self.reference_images, self.calibration, held_out = fitted
        self._note_weights()
        self.fitted = fitting_record(len(outputs), source)
        self.audit = (fit_entry(held_out, source, names),)
        self.calibration_classes = outputs.logits[held_out].argmax(1).cpu()
        self._warn_of_limits(plan.share(train is not None and plan.takes_train))
        return self

    def plan(self, tune: bool | None = None) -> Plan:
        """What `fit` will do about tuning: which views it needs, which images it makes outliers from."""
        return Plan(self._as_given, self._given, tune, self.split_seed, self.alpha, confidence=self.confidence)

    def _forget(self) -> None:
        self.calibration = self.tuning = self.calibration_classes = None
        self.audit = ()
        self._method, self.network = replace(self._as_given), NetworkIdentity(self.classifier)

    def save(self, path: str | Place, **about: Any) -> dict[str, Any]:
        """Write everything but the network to one safetensors file and return its record, which holds ``about``.

        ``path`` may be a URL, such as ``s3://bucket/detector.safetensors``, here and for `load` (docs/places.md).
        """
        self._check_weights()
        return save_detector(path, self, self._calibrated(), {**self.about, **about})

    def export(
        self,
        path: str | Path,
        *,
        format: str | None = None,
        verify: Any = None,
        early: Early | None = None,
        pixels: bool = False,
        int8: Any = None,
    ) -> Proof:
        """Write network, method, calibration and threshold to one file that other engines run.

        The suffix says the format: ``.onnx``, ``.xml`` (OpenVINO) or ``.pt2`` (AOTInductor). The file takes
        normalised images (N, C, H, W) and gives ``logits, prediction, score, p_value, is_ood``; its input ``alpha`` may
        be left out. ``verify``: images on which file and detector must agree, besides noise and stress rows; without
        that proof nothing is written. ``early``: ``pair`` writes a second file that decides what the clean pass
        settles, ``if`` one file of decisions with a branch. `load_exported` reads the files.

        ``pixels``: the file takes uint8 images (N, H, W, C) of any size and resizes, crops and normalises them itself.
        ``int8``: in-distribution images, at least 64, to quantise the network with; the method is fitted and calibrated
        on them again, because the quantised network is another one. Both are for ONNX files without ``early``. See
        docs/export.md.
        """
        self._check_weights()
        fitted, notes = exportable(self, self._calibrated()), tuple[str, ...]()
        pictures = pictures_of(verify, self.preprocess) if pixels else None
        check_kind(format_of(Path(path), format), fitted, early, pixels, int8 is not None)
        if int8 is not None:
            fitted, loss = quantised(self, fitted, *self._inputs_of(int8), source_in_words(int8))
            notes = (str(loss),)
        images = None if verify is None else self._inputs_of(verify)[0]
        proof = export_detector(fitted, Path(path), format, images, early, pictures)
        return replace(proof, notes=(*proof.notes, *notes))

    def _inputs_of(self, images: Any) -> tuple[Tensor, Tensor | None]:
        """All images as inputs, and their labels where every batch has them."""
        given = list(self._batches(images, skip=True))
        labels = [part.labels for part in given if part.labels is not None]
        inputs = torch.cat([part.images for part in given]) if given else torch.empty(0)
        return inputs, torch.cat(labels) if labels and len(labels) == len(given) else None

    @classmethod
    def load(
        cls,
        path: str | Place | DetectorFile,
        model: nn.Module | Classifier | None = None,
        method: type[Detector] | None = None,
        *,
        alpha: float | None = None,
        confidence: float | None = None,
        **network: Any,
    ) -> Self:
        """The saved detector with its network; any other network is refused. ``method``: a class of your own.

        ``alpha``, ``confidence``: in place of the saved ones; the threshold follows without fitting again. Without
        ``model``, the network that the file names is loaded. Then ``network`` may have ``weights``, a file in place of
        the one it names; ``device``; and ``trust=True``, without which no Python file is run. ``engine="openvino"`` or
        ``"onnxruntime"`` runs the network in place of torch, whatever engine it was calibrated with, after proof on
        the probe in the file.
        """
        return cls.load_all([path], model, method, alpha=alpha, confidence=confidence, **network)[0]

    @classmethod
    def load_all(
        cls,
        files: Sequence[str | Place | DetectorFile],
        model: nn.Module | Classifier | None = None,
        method: type[Detector] | None = None,
        *,
        alpha: float | None = None,
        confidence: float | None = None,
        **network: Any,
    ) -> list[Self]:
        """Several saved detectors of one network, which is hashed and checked once."""
        return load_detectors(cls, files, model, method, alpha, confidence, **network)

    def plot(self, images: Any = None) -> Any:
        """A matplotlib figure of the calibration scores and the threshold; with images, of their scores too."""
        self._calibrated()
        return drawn("detector_plot", self, images)

    def _repr_html_(self) -> str:
        return str(drawn("detector_html", self))

    def __repr__(self) -> str:
        state = self.calibration.guarantee() if self.calibration else "not fitted"
        return f"OODDetector({type(self.classifier.model).__name__}, {self.method}): {state}"
