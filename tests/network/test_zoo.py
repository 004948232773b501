"""Heads of whole model zoos with random weights, found and proven. The plain run takes a sample, ``-m slow`` all."""

from __future__ import annotations

import os
import re
import warnings
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from adascale import AdascaleWarning, Classifier, HeadNotFoundError
from adascale.core.extras import optional

# The smallest classifier of each timm family (module) of up to 140 M parameters; the families deepseek_vit, gemma4_vit
# and qwen3_vit have no classifier. The refused ones average or maximise over several heads.
TIMM_FOUND = """
    beit_base_patch16_224 halonet_h1 test_byobnet cait_xxs24_224 coat_tiny convit_tiny convmixer_768_32
    test_convnext cpubone_nano csatv2 cs3darknet_focus_s davit_tiny deit_tiny_patch16_224 densenet121 dla46x_c
    dpn48b edgenext_xx_small test_efficientnet efficientvit_b0 efficientvit_m0 eva02_tiny_patch14_336
    fasternet_t0 fastvit_t8 focalnet_tiny_srf gcvit_xxtiny ghostnet_050 hardcorenas_b hgnetv2_b0 hiera_tiny_224
    hieradet_small hrnet_w18_small iformer_t inception_next_atto inception_resnet_v2 inception_v3 inception_v4
    lcnetv2_small lowformer_b0 test_mambaout maxvit_pico_rw_256 poolformerv2_s12 gmlp_ti16_224
    mobilenetv3_small_050 mobilenetv5_base mobilevit_xxs mvitv2_tiny naflexvit_base_patch16_parfac_gap
    nasnetalarge nest_tiny nextvit_small test_nfnet pit_ti_224 pnasnet5large pvt_v2_b0 rdnet_tiny regnetx_002
    repghostnet_050 res2next50 resnest14d test_resnet resnetv2_18 rexnet_100 selecsls42 legacy_seresnet18
    sequencer2d_s shvit_s1 skresnet18 starnet_s050 swin_tiny_patch4_window7_224 swinv2_tiny_window8_256
    swinv2_cr_tiny_224 tiny_vit_5m_224 tnt_s_legacy_patch16_224 tresnet_m twins_svt_small vgg11 visformer_tiny
    test_vit vit_tiny_r_s16_p8_224 vit_srelpos_small_patch16_224 samvit_base_patch16_224 vitamin_small_224
    ese_vovnet19b_slim_dw legacy_xception xception41p xcit_nano_12_p8_224
""".split()
TIMM_REFUSED = """
    crossvit_tiny_240 efficientformer_l1 efficientformerv2_s0 efficientvim_m1 levit_128s repvit_m1
    swiftformer_xs volo_d1_224
""".split()
# Over 600 M parameters, the same code as their smaller siblings: tried with ADASCALE_LARGEST=1.
LARGEST = ("torchvision:regnet_y_128gf", "torchvision:vit_h_14")
# The same code as their smaller siblings: left out of .ci/run.
SIBLINGS = re.compile(
    r"torchvision:(convnext_(base|large|small)|densenet1[26]9|densenet161|densenet201|efficientnet_(b[3-7]|v2_[lm])|"
    r"regnet_[xy]_(1_6|3_2|8|16|32)gf|resnet(101|152)|resnext101.*|swin_(v2_)?[bs]|vgg(13|16|19).*|vit_(b_32|l_.*)|"
    r"wide_resnet101_2)$"
)
TORCHVISION_REFUSED = ["squeezenet1_0", "squeezenet1_1"]
SAMPLE = """
    torchvision:googlenet torchvision:mobilenet_v3_small torchvision:regnet_y_400mf torchvision:resnet18
    torchvision:swin_t torchvision:squeezenet1_1 timm:beit_base_patch16_224 timm:efficientnet_lite0 timm:levit_128s
    timm:resnet10t timm:tf_mixnet_s timm:xcit_nano_12_p16_224
""".split()


MIXING = ("timm:gcvit_xxtiny",)  # its windows take the global queries of other images of the batch


def torchvision_names() -> list[str]:
    models = optional("torchvision.models", "torchvision")
    names: list[str] = models.list_models(module=models)
    return names


def everything() -> list[Any]:
    names = [f"torchvision:{name}" for name in torchvision_names()]
    names += [f"timm:{name}" for name in TIMM_FOUND + TIMM_REFUSED]
    return [pytest.param(name, marks=pytest.mark.long) if SIBLINGS.search(name) else name for name in names]


def build(spec: str) -> tuple[nn.Module, tuple[int, ...]]:
    """The network with random weights and the smallest input it is at ease with."""
    source, _, name = spec.partition(":")
    if source == "timm":
        timm = optional("timm", "timm")
        model = timm.create_model(name)
        return model, tuple(timm.data.resolve_model_data_config(model)["input_size"])
    models = optional("torchvision.models", "torchvision")
    extra: dict[str, Any] = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    fixed = name.startswith(("vit", "maxvit", "swin", "vgg", "alexnet"))
    return models.get_model(name, weights=None, **extra), (3, 224, 224) if fixed else (3, 96, 96)


def quickly(tensor: Tensor, *_: Any, **__: Any) -> Tensor:
    """Weights of a sensible size; the initialisers' own draws take longer than the passes."""
    with torch.no_grad():
        return tensor.uniform_(-1, 1).mul_((3 / max(1, tensor[0].numel())) ** 0.5)


def check(spec: str) -> None:
    torch.manual_seed(0)
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        for name in ("kaiming_normal_", "kaiming_uniform_", "trunc_normal_", "xavier_uniform_"):
            patch.setattr(nn.init, name, quickly)
        model, shape = build(spec)
    with torch.no_grad():  # heads that start at zero would make the proof empty
        for parameter in model.parameters():
            if parameter.ndim >= 2 and not parameter.any():
                nn.init.normal_(parameter, std=0.02)
    x = torch.randn(2, *shape)
    if spec.partition(":")[2] in TIMM_REFUSED + TORCHVISION_REFUSED:
        with pytest.raises(HeadNotFoundError, match=r"Candidates, last first: '.*head='\.\.\.'"):
            Classifier(model).locate(x)
        return
    classifier = Classifier(model)
    with pytest.warns(AdascaleWarning, match="other images beside it") if spec in MIXING else nullcontext():
        classifier.locate(x)
    features, logits = classifier.forward(x)
    scale = float(logits.abs().max())
    assert float((classifier.head(features) - logits).abs().max()) <= 1e-5 * scale
    with torch.no_grad():
        output = model.eval()(x)
    assert torch.allclose(logits, output, rtol=1e-3, atol=1e-4 * scale)


@pytest.mark.parametrize("spec", SAMPLE)
def test_sample(spec: str) -> None:
    check(spec)


@pytest.mark.slow
@pytest.mark.parametrize("spec", everything())
def test_all(spec: str) -> None:
    if spec in LARGEST and not os.environ.get("ADASCALE_LARGEST"):
        pytest.skip("over 600 M parameters; set ADASCALE_LARGEST=1")
    check(spec)


def test_the_table_covers_the_zoos() -> None:
    assert len(torchvision_names()) >= 63
    assert set(TORCHVISION_REFUSED) <= set(torchvision_names())
    assert len(TIMM_FOUND) >= 85
    timm = optional("timm", "timm")
    assert set(TIMM_FOUND + TIMM_REFUSED) <= set(timm.list_models())


HUGGING_FACE: dict[str, dict[str, Any]] = {
    "ViT": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64},
    "Beit": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64},
    "Dinov2": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 16},
    "ResNet": {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1]},
    "ConvNext": {"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2},
    "RegNet": {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "groups_width": 8},
    "Swin": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 7},
}


@pytest.mark.parametrize("family", HUGGING_FACE)
def test_hugging_face(family: str) -> None:
    optional("torchvision", "torchvision")
    transformers = optional("transformers", "huggingface")
    config = getattr(transformers, f"{family}Config")(num_labels=7, image_size=224, **HUGGING_FACE[family])
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}ForImageClassification")(config).eval()
    x = torch.randn(2, 3, 224, 224)
    classifier = Classifier(model).locate(x)
    features, logits = classifier.forward(x)
    assert torch.allclose(classifier.head(features).float(), model(x).logits, atol=1e-5)
    assert torch.allclose(logits, model(x).logits, atol=1e-5)
