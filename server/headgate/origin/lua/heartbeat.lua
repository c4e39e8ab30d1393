-- A run says that it lives.
--
-- KEYS     the living: when each run was last heard; other regions: when each was; about the map (write_map.lua);
--          those of the living that leave room for allowances beyond P, which older versions do not; those that say by
--          which list of shards they place keys; those of them that do so by this run's list
-- ARGV     the run; after how many ms of silence it no longer counts; after how many a region does not
-- Returns  the shard's time; how many live; 1 if this run was known to, else 0; how many regions were heard;
--          the map's generation and version; how many of the living are of an older version; how many of them place
--          keys by another list

local live, run, gone_ms, region_gone_ms = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

-- Of one set of runs: forget who is silent, note this one, and count. Whether it was known comes second.
local function beat(runs)
  redis.call('ZREMRANGEBYSCORE', runs, '-inf', now - gone_ms)
  local known = redis.call('ZSCORE', runs, run) and 1 or 0
  -- One that lies ahead was written before the clock was set back, and would count for too long.
  redis.call('ZREMRANGEBYSCORE', runs, now + gone_ms, '+inf')
  redis.call('ZADD', runs, now, run)
  -- Twice as long as it matters, so that expiry never decides who lives.
  redis.call('PEXPIRE', runs, 2 * gone_ms)
  return redis.call('ZCARD', runs), known
end

local lives, known = beat(live)
local older = lives - beat(KEYS[4])
local listed = beat(KEYS[5])
local otherwise = listed - beat(KEYS[6])
local heard = redis.call('ZCOUNT', KEYS[2], '(' .. now - region_gone_ms, '(' .. now + region_gone_ms)
local map = redis.call('HMGET', KEYS[3], 'g', 'v')
return { now, lives, known, heard, map[1] or '', tonumber(map[2] or 0), older, otherwise }
