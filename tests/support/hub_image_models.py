"""Tiny image classifiers of KerasHub. `keras_hub` brings TensorFlow with it."""

SHAPE = (32, 32, 3)


def _resnet(models, kind, filters):
    return models.ResNetBackbone(
        input_conv_filters=filters,
        input_conv_kernel_sizes=[3] * len(filters),
        stackwise_num_filters=[64, 16],
        stackwise_num_blocks=[2, 1],
        stackwise_num_strides=[1, 2],
        block_type=kind,
        image_shape=(None, None, 3),
    )


def _vgg(models):
    return models.VGGBackbone([1, 2], [8, 16], image_shape=SHAPE)


def _densenet(models):
    return models.DenseNetBackbone(
        stackwise_num_repeats=[2, 2], growth_rate=8, image_shape=SHAPE
    )


def _xception(models):
    return models.XceptionBackbone(
        stackwise_conv_filters=[[8, 8], [16, 16], [16, 16]],
        stackwise_pooling=[False, True, False],
        image_shape=SHAPE,
    )


def _mobilenet(models):
    return models.MobileNetBackbone(
        stackwise_expansion=[[8, 16]],
        stackwise_num_blocks=[2],
        stackwise_num_filters=[[8, 8]],
        stackwise_kernel_size=[[3, 3]],
        stackwise_num_strides=[[2, 1]],
        stackwise_se_ratio=[[0.25, None]],
        stackwise_activation=[["relu", "hard_swish"]],
        stackwise_padding=[[1, 1]],
        output_num_filters=16,
        input_activation="hard_swish",
        output_activation="hard_swish",
        input_num_filters=8,
        depthwise_filters=8,
        depthwise_stride=1,
        depthwise_residual=False,
        last_layer_filter=16,
        squeeze_and_excite=0.5,
        image_shape=SHAPE,
    )


def _efficientnet(models):
    return models.EfficientNetBackbone(
        stackwise_width_coefficients=[1.0] * 3,
        stackwise_depth_coefficients=[1.0] * 3,
        stackwise_kernel_sizes=[3, 3, 3],
        stackwise_num_repeats=[1, 2, 1],
        stackwise_input_filters=[8, 8, 16],
        stackwise_output_filters=[8, 16, 16],
        stackwise_expansion_ratios=[1, 4, 4],
        stackwise_strides=[1, 2, 2],
        stackwise_squeeze_and_excite_ratios=[0.25, 0, 0.25],
        stackwise_block_types=["fused", "unfused", "unfused"],
        min_depth=8,
        image_shape=SHAPE,
    )


def _cspnet(models, stage, block):
    return models.CSPNetBackbone(
        stem_filters=8,
        stem_kernel_size=3,
        stem_strides=1,
        stackwise_depth=[1, 2],
        stackwise_strides=[1, 2],
        stackwise_num_filters=[8, 16],
        block_type=block,
        stage_type=stage,
        block_ratio=[0.5, 0.5],
        bottle_ratio=[0.5, 0.5],
        expand_ratio=[1.0, 1.0],
        image_shape=SHAPE,
    )


def _hgnet(models, affine=False):
    return models.HGNetV2Backbone(
        depths=[1, 2],
        embedding_size=8,
        hidden_sizes=[16, 24],
        stem_channels=[3, 8, 8],
        hidden_act="relu",
        use_learnable_affine_block=affine,
        stackwise_stage_filters=[(8, 8, 16, 1, 2, 3), (16, 8, 24, 2, 2, 3)],
        apply_downsample=[False, True],
        use_lightweight_conv_block=[False, True],
        image_shape=SHAPE,
    )


def _mit(models):
    return models.MiTBackbone(
        layerwise_depths=[1, 1],
        num_layers=2,
        layerwise_num_heads=[1, 2],
        layerwise_sr_ratios=[2, 1],
        max_drop_path_rate=0.1,
        image_shape=SHAPE,
        hidden_dims=[8, 16],
        layerwise_patch_sizes=[7, 3],
        layerwise_strides=[4, 2],
    )


#: name -> (task, function of `keras_hub.models` that makes a backbone).
BACKBONES = {
    "ResNet": ("ResNet", lambda m: _resnet(m, "bottleneck_block", [8])),
    "ResNet vd": ("ResNet", lambda m: _resnet(m, "basic_block_vd", [8, 8])),
    "VGG": ("VGG", _vgg),
    "DenseNet": ("DenseNet", _densenet),
    "Xception": ("Xception", _xception),
    "MobileNet": ("MobileNet", _mobilenet),
    "EfficientNet": ("EfficientNet", _efficientnet),
    "CSPNet": ("CSPNet", lambda m: _cspnet(m, "csp", "dark_block")),
    "CSPNet cs3": ("CSPNet", lambda m: _cspnet(m, "cs3", "bottleneck_block")),
    "HGNetV2": ("HGNetV2", _hgnet),
    "HGNetV2 affine": ("HGNetV2", lambda m: _hgnet(m, affine=True)),
    "MiT": ("MiT", _mit),
}


def image_classifier(name):
    """A task of 4 classes."""
    import keras_hub

    task, backbone = BACKBONES[name]
    more = {"preprocessor": None} if task == "HGNetV2" else {}
    if task == "VGG":
        more = {"pooling_hidden_dim": 16}
    return getattr(keras_hub.models, f"{task}ImageClassifier")(
        backbone=backbone(keras_hub.models), num_classes=4, **more
    )
