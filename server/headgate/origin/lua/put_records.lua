-- Open records that were sealed elsewhere, unless they are open here (move_records.py).
--
-- KEYS     the list (change_list.lua); then the records
-- ARGV     the list's number; packed, flat, for each record: for how many ms it is kept, how many fields and values
--          follow, and these
-- Returns  1; 0 if this shard knows of a later list

local number, fence = tonumber(ARGV[1]), tonumber(redis.call('HMGET', KEYS[1], 'f')[1] or 0)
if fence > number then
  return 0
elseif fence < number then
  redis.call('HSET', KEYS[1], 'f', number)
  redis.call('PEXPIRE', KEYS[1], 86400000)
end
local flat, at = cmsgpack.unpack(ARGV[2]), 1
for index = 2, #KEYS do
  local key, left, count = KEYS[index], flat[at], flat[at + 1]
  -- One that is sealed here was left behind by an earlier move.
  local sealed = redis.call('HMGET', key, 's')[1]
  if sealed then
    redis.call('DEL', key)
  end
  if left > 0 and (sealed or redis.call('HLEN', key) == 0) then
    for field = at + 2, at + 1 + count, 2 do
      redis.call('HSET', key, flat[field], flat[field + 1])
    end
    redis.call('PEXPIRE', key, string.format('%.0f', left))
  end
  at = at + 2 + count
end
return 1
