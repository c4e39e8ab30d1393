-- Who keeps the region's slices (lease.py).
--
-- KEYS     the quota hash; the list of shards (change_list.lua)
-- ARGV     who asks; for how many ms a lease is given; a generation, if there is none; the number of the list by which
--          this is the place; above which the fence is to be; then the peers
-- Returns  the shard's time; 1 if the lease is the asker's, else 0; fence; generation; mark; then per peer what was
--          posted for the keeper, or nothing

local hash, owner, lease_ms = KEYS[1], ARGV[1], tonumber(ARGV[2])
local KEPT_MS = 30 * 86400000

local known = redis.call('HMGET', hash, 'l', 'n', 'g', 'm')
local fence = tonumber(known[2]) or 0
local holder, held_until = '', 0
if known[1] then
  holder, held_until = cmsgpack.unpack(known[1])
end
-- One that was given by a clock that is ahead binds nobody.
local taken = holder ~= '' and holder ~= owner and held_until > now and held_until <= now + lease_ms
local latest = has_list(KEYS[2], tonumber(ARGV[4]))
if taken or not latest then
  return { now, 0, string.format('%.0f', fence), known[3] or '', '' }
end
redis.call('HSETNX', hash, 'g', ARGV[3])
if holder ~= owner then
  fence = math.max(fence + 1, now)
end
fence = math.max(fence, tonumber(ARGV[5]) + 1)
redis.call('HSET', hash, 'n', string.format('%.0f', fence), 'l', cmsgpack.pack(owner, now + lease_ms))
redis.call('PEXPIRE', hash, KEPT_MS)
local out = { now, 1, string.format('%.0f', fence), known[3] or ARGV[3], known[4] or '' }
for index = 6, #ARGV do
  out[index] = redis.call('HGET', hash, 'i' .. ARGV[index]) or ''
end
return out
