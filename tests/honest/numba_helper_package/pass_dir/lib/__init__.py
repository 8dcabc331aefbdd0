from pass_dir.lib.launch import rms_norm

__all__ = ["rms_norm"]
