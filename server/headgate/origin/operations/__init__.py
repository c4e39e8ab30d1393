"""Operations on a shard, one per module: its values, its meaning in memory, its packing; its script stands in lua/."""
