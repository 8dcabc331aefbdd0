"""What the fields of `transformers` configurations are called, by what zoo_config.py makes of them."""

from __future__ import annotations

from typing import Any


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


WIDTHS = _names(
    """hidden_size d_model n_embd embed_dim dim emb_dim projection_dim out_hidden_size decoder_hidden_size
    encoder_hidden_size text_hidden_size cross_attention_hidden_size projector_hidden_size encoder_hidden_dim
    hidden_dim vision_output_dim output_dim fusion_hidden_size mask_feature_size reassemble_hidden_size
    thinker_hidden_size adapter_out_dim output_proj_dims backbone_hidden_size fpn_hidden_size image_text_hidden_size
    pred_hidden_size embedding_size embedding_dim lru_width hidden_size_global decoder_embed_dim mit_hidden_size
    projection_size resampler_hidden_size input_embedding_size output_embedding_size contrastive_hidden_size
    visual_embedding_dim output_hidden_size visual_feat_dim text_dim vision_dim input_hidden_size vit_dim"""
)
"""The width of a model or of one of its parts: all of them get one width, so that parts that meet do fit."""
INTERMEDIATES = _names(
    """intermediate_size encoder_ffn_dim decoder_ffn_dim d_ff ffn_dim n_inner mlp_dim decoder_intermediate_size
    feed_forward_size d_inner ffn_hidden_size encoder_feedforward_dim dim_feedforward encoder_intermediate_size
    mlp_hidden_size dense_intermediate_size intermediate_size_mlp speech_encoder_intermediate_size
    projector_intermediate_size mit_intermediate_size alignment_intermediate_size projection_intermediate_size"""
)
"""Inner widths of feed-forward layers: the class's ratio to its width stays, between 1 and 4."""
EXPERT_WIDTHS = _names(
    """moe_intermediate_size shared_expert_intermediate_size moe_shared_expert_intermediate_size expert_ffn_hidden_size
    share_expert_dim shared_intermediate_size expert_dim"""
)
"""Inner widths of experts."""
HEADS = _names(
    """num_attention_heads n_head num_heads encoder_attention_heads decoder_attention_heads n_heads attention_heads
    decoder_num_attention_heads encoder_num_attention_heads num_encoder_attention_heads num_decoder_attention_heads
    pred_num_attention_heads swa_num_attention_heads resampler_n_heads mit_num_attention_heads num_heads_encoder
    speech_encoder_attention_heads decoder_self_attention_heads decoder_cross_attention_heads"""
)
"""Query heads."""
KEY_VALUE_HEADS = _names(
    """num_key_value_heads swa_num_key_value_heads num_kv_heads n_kv_heads encoder_num_key_value_heads
    decoder_num_key_value_heads num_global_key_value_heads cross_num_key_value_heads"""
)
"""Key and value heads: grouped as the class groups them."""
EXPERT_COUNTS = _names("num_experts n_routed_experts num_local_experts moe_num_experts")
"""Experts that a router chooses from."""
HEAD_DIMS = _names("head_dim d_kv kv_channels global_head_dim swa_head_dim cross_head_dim")
"""The width of one head."""
LAYERS = _names(
    """num_hidden_layers n_layer num_layers encoder_layers decoder_layers depth n_layers num_decoder_layers
    num_encoder_layers decoder_num_hidden_layers encoder_num_hidden_layers layers pred_num_hidden_layers
    mit_num_hidden_layers num_hidden_groups speech_encoder_layers num_spatial_layers num_temporal_layers
    num_blocks"""
)
"""How many layers there are."""
POSITIONS = _names(
    """max_position_embeddings n_positions n_ctx max_source_positions max_target_positions max_seq_len max_seq_length
    max_text_positions max_encoder_position_embeddings max_decoder_position_embeddings"""
)
"""How many positions a table of positions has."""
BLOCK_COUNTS = _names("depths num_block_repeats stage_num_blocks n_attn_blocks block_sizes")
"""Blocks of each stage of a network whose channels grow from stage to stage: one each."""
WIDTH_LISTS = _names(
    """hidden_sizes embed_dims embed_dim conv_dim neck_hidden_sizes stage_in_channels stage_mid_channels
    stage_out_channels encoder_hidden_sizes convstream_hidden_sizes fusion_hidden_sizes stem_channels
    encoder_in_channels"""
)
"""Channels of each stage: a quarter of the class's."""
SAME_WIDTH_LISTS = _names("decoder_in_channels vision_features_channels")
"""Channels of every level, all the width of the model."""
FIXED: dict[str, Any] = {
    **dict.fromkeys(EXPERT_COUNTS, 4),
    "num_experts_per_tok": 2, "moe_topk": 2, "moe_k": 2, "moe_top_k": 2, "top_k_experts": 2,
    "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
    "kv_lora_rank": 32, "q_lora_rank": 48, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 32,
    "index_head_dim": 32, "index_n_heads": 2, "index_topk": 32,
    "chunk_size": 16, "mamba_chunk_size": 16, "mamba_d_state": 16, "num_kv_shared_layers": 0,
    "ssm_state_size": 16, "state_size": 16, "n_groups": 2, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_head_dim": 32, "linear_num_heads": 4,
    "num_queries": 24, "num_denoising": 0, "sliding_window": 32, "use_cache": False,
    "use_timm_backbone": False, "use_pretrained_backbone": False, "codevector_dim": 64, "proj_codevector_dim": 64,
}  # fmt: skip
"""Fields that get one value wherever the class has a larger one (or, of booleans, the other one)."""

UNSET: dict[str, Any] = {"num_experts_per_tok": 2, "n_routed_experts": 4}
"""Fields that a class leaves open although its model needs them."""

SMALL_VOCABULARY = 300
"""Characters, amino acids, codes: such vocabularies stay whole."""
MAX_PATCH = 8
"""Pixels a side."""
RESERVED_IDS = 40
"""At either end of a vocabulary: special tokens, never drawn as text."""
