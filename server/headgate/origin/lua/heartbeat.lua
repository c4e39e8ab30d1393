-- A run says that it lives.
--
-- KEYS     the living: when each run was last heard; other regions: when each was; about the map (write_map.lua);
--          those of the living that leave room for allowances beyond P, which older versions do not
-- ARGV     the run; after how many ms of silence it no longer counts; after how many a region does not
-- Returns  the shard's time; how many live; 1 if this run was known to, else 0; how many regions were heard;
--          the map's generation and version; how many of the living are of an older version

local live, run, gone_ms, region_gone_ms = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local newer = KEYS[4]
redis.call('ZREMRANGEBYSCORE', live, '-inf', now - gone_ms)
redis.call('ZREMRANGEBYSCORE', newer, '-inf', now - gone_ms)
local known = redis.call('ZSCORE', live, run) and 1 or 0
-- One that lies ahead was written before the clock was set back, and would count for too long.
redis.call('ZREMRANGEBYSCORE', live, now + gone_ms, '+inf')
redis.call('ZREMRANGEBYSCORE', newer, now + gone_ms, '+inf')
redis.call('ZADD', live, now, run)
redis.call('ZADD', newer, now, run)
-- Twice as long as it matters, so that expiry never decides who lives.
redis.call('PEXPIRE', live, 2 * gone_ms)
redis.call('PEXPIRE', newer, 2 * gone_ms)
local heard = redis.call('ZCOUNT', KEYS[2], '(' .. now - region_gone_ms, '(' .. now + region_gone_ms)
local map = redis.call('HMGET', KEYS[3], 'g', 'v')
local lives = redis.call('ZCARD', live)
return { now, lives, known, heard, map[1] or '', tonumber(map[2] or 0), lives - redis.call('ZCARD', newer) }
