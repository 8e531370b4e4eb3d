"""The exercises of each chapter, in order, so that a chapter loads only its own."""

_NAMES = {
    "patches": "num_patches patchify unpatchify kernel_to_matrix pad_to_patches",
    "positions": "order_blind add_cls_token sincos_1d position_similarity sincos_2d shift_matrix resample_pos_embed",
    "attention": "softmax_rows attention_weights row_entropy split_heads merge_heads fuse_qkv weights_from_kernel "
    "rows_are_independent",
    "encoder": "pre_norm_block layer_norm gelu drop_path norm_is_alive drop_path_rates block_multiply_adds",
    "model": "forward_features pool_tokens count_parameters cross_entropy softmax_loss_floor confusion_counts",
    "training": "mean_over_images accuracy_per_class warmup_cosine parameter_groups random_crop smooth_labels "
    "mix_pairs",
    "recipes": "update_ema cut_and_mix split_product most_confused_pairs expected_calibration_error loss_weights",
    "attention_maps": "record_maps mean_distance rollout weight_gradient mass_on_object hide_top",
    "pretrained": "top_k_names rename_key split_in_proj loading_report memory_of linear_probe",
    "what_matters": "effect_interval equal_width fraction_needed shift",
    "speed": "training_flops fit_cost pareto_front",
    "clinic": "outputs_are_probabilities images_are_independent dead_norms patches_stay_together embed_matches_conv "
    "ends_with_norm heads_see_everything scale_is_right any_batch_size chosen_without_the_test_set",
    "modern": "rotate_pairs relative_position_index with_registers patch_dropout rms_norm",
}
CHAPTERS = {chapter: tuple(names.split()) for chapter, names in _NAMES.items()}
