"""Operations of nodes and of the keeper on a shard's quotas (quota/store.py); their scripts stand in quota/lua/."""
