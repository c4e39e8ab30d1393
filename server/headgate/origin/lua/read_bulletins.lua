-- All nodes' bulletins (bulletins.py).
--
-- KEYS     bulletins by run; when each was posted; what is wanted, with until when
-- ARGV     what nodes shall say; for how many ms; for how many ms a bulletin is kept; how many things may be wanted
-- Returns  packed, flat, three per bulletin: run, age in ms, content

local wanted, wanted_ms, kept_ms, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local known, count, had = redis.call('HGETALL', KEYS[3]), 0, false
for i = 1, #known, 2 do
  if tonumber(known[i + 1]) <= now then
    redis.call('HDEL', KEYS[3], known[i])
  else
    count, had = count + 1, had or known[i] == wanted
  end
end
if had or count < most then
  redis.call('HSET', KEYS[3], wanted, string.format('%.0f', now + wanted_ms))
  redis.call('PEXPIRE', KEYS[3], wanted_ms)
end
local out, posted, heard = {}, redis.call('HGETALL', KEYS[1]), {}
local times = redis.call('HGETALL', KEYS[2])
for i = 1, #times, 2 do
  heard[times[i]] = tonumber(times[i + 1])
end
for i = 1, #posted, 2 do
  local at = heard[posted[i]]
  if at and math.abs(now - at) < kept_ms then
    out[#out + 1] = posted[i]
    out[#out + 1] = now - at
    out[#out + 1] = posted[i + 1]
  end
end
return cmsgpack.pack(out)
