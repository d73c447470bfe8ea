"A tiny random StableDiffusion3Pipeline and StableDiffusionPipeline, built from configurations: nothing is loaded, nothing is trained."
import torch


def tokenizer(length=12):
    "A CLIP tokenizer that knows letters only."
    from transformers import CLIPTokenizer
    letters = [chr(c) for c in range(97, 123)]
    words = letters + [c + "</w>" for c in letters] + ["<|startoftext|>", "<|endoftext|>"]
    return CLIPTokenizer(vocab={w: i for i, w in enumerate(words)}, merges=[], model_max_length=length)


def text_encoder(seed, projection=True):
    "A CLIP text encoder of a few thousand parameters."
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection
    torch.manual_seed(seed)
    config = CLIPTextConfig(vocab_size=54, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=12,
                            projection_dim=16, bos_token_id=52, eos_token_id=53, pad_token_id=53)
    return (CLIPTextModelWithProjection if projection else CLIPTextModel)(config).eval()


def vae(latents, scale=1.0, shift=0.0):
    "An autoencoder that shrinks a picture four times."
    from diffusers import AutoencoderKL
    return AutoencoderKL(down_block_types=["DownEncoderBlock2D"] * 3, up_block_types=["UpDecoderBlock2D"] * 3, block_out_channels=[8, 8, 8], layers_per_block=1,
                         latent_channels=latents, norm_num_groups=4, sample_size=16, scaling_factor=scale, shift_factor=shift).eval()


def sd3(seed=0):
    "Latents of 4 x 8 x 8, pictures of 32 x 32."
    from diffusers import FlowMatchEulerDiscreteScheduler, SD3Transformer2DModel, StableDiffusion3Pipeline
    torch.set_num_threads(1)
    encoders = [text_encoder(seed), text_encoder(seed + 1)]
    torch.manual_seed(seed)
    transformer = SD3Transformer2DModel(sample_size=8, patch_size=2, in_channels=4, out_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=2, joint_attention_dim=32,
                                        caption_projection_dim=16, pooled_projection_dim=32, pos_embed_max_size=8, qk_norm="rms_norm").eval()
    pipe = StableDiffusion3Pipeline(transformer=transformer, scheduler=FlowMatchEulerDiscreteScheduler(), vae=vae(4), text_encoder=encoders[0], tokenizer=tokenizer(), text_encoder_2=encoders[1], tokenizer_2=tokenizer(), text_encoder_3=None, tokenizer_3=None)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def sd15(seed=0, **scheduler):
    "The same with a UNet and DDIM."
    from diffusers import DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
    torch.set_num_threads(1)
    encoder = text_encoder(seed, projection=False)
    torch.manual_seed(seed)
    unet = UNet2DConditionModel(sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(8, 16), down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                                up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=16, attention_head_dim=2, norm_num_groups=4).eval()
    pipe = StableDiffusionPipeline(unet=unet, scheduler=DDIMScheduler(**{"clip_sample": False, "set_alpha_to_one": False, "beta_schedule": "scaled_linear", "steps_offset": 1} | scheduler), vae=vae(4),
                                   text_encoder=encoder, tokenizer=tokenizer(), safety_checker=None, feature_extractor=None, requires_safety_checker=False)
    pipe.set_progress_bar_config(disable=True)
    return pipe
