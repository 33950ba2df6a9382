"""Excel index and feature files -> shards and manifest; no torch, no knowledge of training."""
