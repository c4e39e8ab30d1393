-- A run says that it lives.
--
-- KEYS     the living: when each run was last heard; other regions: when each was; about the map (write_map.lua);
--          those of the living that leave room for allowances beyond P, which older versions do not; the memory's name;
--          those that say which list of shards they want; those of them that want this run's; the list in force
--          (change_list.lua)
-- ARGV     the run; after how many ms of silence it no longer counts; after how many a region does not; for how many
--          a memory keeps its name; the time of the run's last answered heartbeat; a name for a memory that needs one;
--          the list in force as the run knows it: its number, its shards, those that keys move from
-- Returns  the shard's time; how many live; the memory's name; how many regions were heard;
--          the map's generation and version; how many of the living are of an older version; how many of them want
--          another list, and how many say nothing of it; the list in force here; 1 if all records have moved for it

local live, run, gone_ms, region_gone_ms = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local memory, heard_ms = KEYS[5], tonumber(ARGV[5])

-- Of one set of runs: forget who is silent, note this one, and count. When it was heard before comes second.
local function beat(runs)
  redis.call('ZREMRANGEBYSCORE', runs, '-inf', now - gone_ms)
  local before = redis.call('ZSCORE', runs, run)
  -- One that lies ahead was written before the clock was set back, and would count for too long.
  redis.call('ZREMRANGEBYSCORE', runs, now + gone_ms, '+inf')
  redis.call('ZADD', runs, now, run)
  -- Twice as long as it matters, so that expiry never decides who lives.
  redis.call('PEXPIRE', runs, 2 * gone_ms)
  return redis.call('ZCARD', runs), before
end

local lives, before = beat(live)
local older = lives - beat(KEYS[4])
local listed = beat(KEYS[6])
local otherwise = listed - beat(KEYS[7])
-- A memory without a name is new. One with an older heartbeat of this run than it has answered lacks its end.
local name = redis.call('HMGET', memory, 'n')[1]
if not name or tonumber(before or heard_ms) < heard_ms then
  name = ARGV[6]
  redis.call('HSET', memory, 'n', name)
end
redis.call('PEXPIRE', memory, ARGV[4])
local heard = redis.call('ZCOUNT', KEYS[2], '(' .. now - region_gone_ms, '(' .. now + region_gone_ms)
local map = redis.call('HMGET', KEYS[3], 'g', 'v')
-- Keep a list that comes after the one that is kept, or ends the same move (placement.py, `overrules`).
local list = redis.call('HMGET', KEYS[8], 'n', 's', 'b', 'w', 'f')
local kept, told = tonumber(list[1] or 0), tonumber(ARGV[7])
local comes_after = told > kept
if told > 0 and told == kept then
  if ARGV[8] == list[2] then
    comes_after = ARGV[9] == '' and list[3] ~= ''
  else
    comes_after = ARGV[8] > list[2]
  end
end
if comes_after then
  local fence = string.format('%.0f', math.max(told, tonumber(list[5] or 0)))
  redis.call('HSET', KEYS[8], 'n', ARGV[7], 's', ARGV[8], 'b', ARGV[9], 'f', fence)
  list[1], list[2], list[3], kept = ARGV[7], ARGV[8], ARGV[9], told
end
if kept > 0 then
  redis.call('PEXPIRE', KEYS[8], 86400000)
end
local moved = kept > 0 and tonumber(list[4] or 0) == kept and 1 or 0
return {
  now, lives, name, heard, map[1] or '', tonumber(map[2] or 0), older, otherwise, lives - listed, list[1] or '',
  list[2] or '', list[3] or '', moved,
}
