-- Write entries into the region's map (region_map.py).
--
-- KEYS     the map: name -> value, expires, stamp; names by their change's number; names by when they expire;
--          and about it: g generation, v version (the latest change's number), s the highest stamp, n how many expire,
--          t how many of these other regions told of
-- ARGV     packed, flat, four per entry: name, value, expires, stamp; a generation, if there is none; how many
--          entries that expire there may be; how many names; for how many ms a removal is remembered; how names begin
--          that other regions told of, and how many of these there may be, beside the others
-- Returns  generation, version, the shard's time, how many count, how many were refused

local map, changed, expiry, about = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local given, most, most_names, removed_for = cmsgpack.unpack(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local told_prefix, most_told = ARGV[6], tonumber(ARGV[7])
local NEW, FIRST = 0, -1
-- Expired entries that one call removes: at most as many as there may be.
local FORGET = 1000
-- How long all of it outlives the last write; nodes that live teach it again.
local KEPT_MS = 30 * 86400000

redis.call('HSETNX', about, 'g', ARGV[2])
local known = redis.call('HMGET', about, 'g', 'v', 's', 'n', 't')
local generation, version, latest, count = known[1], tonumber(known[2] or 0), tonumber(known[3] or 0), tonumber(known[4] or 0)
local told = tonumber(known[5] or 0)

local function counts(value, expires)
  return value ~= '' and expires > 0
end

local function is_told(name)
  return string.sub(name, 1, #told_prefix) == told_prefix
end

local function read(name)
  local packed = redis.call('HGET', map, name)
  if packed then
    return cmsgpack.unpack(packed)
  end
end

local gone = redis.call('ZRANGEBYSCORE', expiry, '-inf', now, 'LIMIT', 0, FORGET)
for i = 1, #gone do
  local value, expires = read(gone[i])
  if value and counts(value, expires) then
    count = count - 1
    if is_told(gone[i]) then
      told = math.max(0, told - 1)
    end
  end
  redis.call('HDEL', map, gone[i])
  redis.call('ZREM', changed, gone[i])
  redis.call('ZREM', expiry, gone[i])
end
local names, refused = redis.call('HLEN', map), 0

-- The entry as it will stand: value, expires, stamp; nothing if it changes nothing.
local function merged(value, expires, stamp, had_value, had_expires, had_stamp)
  if stamp > 0 then
    if (had_stamp and stamp <= had_stamp) or (expires > 0 and expires <= now) then
      return
    end
    return value, expires, stamp
  end
  if stamp == FIRST and had_stamp then
    return
  end
  stamp = math.max(now, latest + 1)
  if value ~= '' then
    return value, expires, stamp
  end
  if not had_stamp or had_value == '' then
    return
  end
  local kept = now + removed_for
  return '', had_expires > 0 and math.min(had_expires, kept) or kept, stamp
end

for at = 1, #given, 4 do
  local name = given[at]
  local had_value, had_expires, had_stamp = read(name)
  local value, expires, stamp = merged(given[at + 1], given[at + 2], given[at + 3], had_value, had_expires, had_stamp)
  if stamp then
    local counted = had_stamp and counts(had_value, had_expires)
    local is_new, full = not had_stamp
    if is_told(name) then
      full = is_new and told >= most_told
    else
      full = (is_new and names - told >= most_names)
        or (counts(value, expires) and not counted and count - told >= most)
    end
    if full then
      refused = refused + 1
    else
      told = told + (is_new and is_told(name) and 1 or 0)
      version, latest = version + 1, math.max(latest, stamp)
      count = count + (counts(value, expires) and 1 or 0) - (counted and 1 or 0)
      names = names + (had_stamp and 0 or 1)
      redis.call('HSET', map, name, cmsgpack.pack(value, expires, stamp))
      redis.call('ZADD', changed, version, name)
      if expires > 0 then
        redis.call('ZADD', expiry, expires, name)
      else
        redis.call('ZREM', expiry, name)
      end
    end
  end
end

redis.call('HSET', about, 'v', version, 's', latest, 'n', count, 't', told)
for i = 1, #KEYS do
  redis.call('PEXPIRE', KEYS[i], KEPT_MS)
end
return { generation, version, now, count - told, refused }
