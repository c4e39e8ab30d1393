-- Open records that were sealed elsewhere, unless they are open here (move_records.py).
--
-- KEYS     the list (change_list.lua); those of outbox.lua; then the records
-- ARGV     the list's number; packed, flat, for each record: for how many ms it is kept, how many fields and values
--          follow, and these; packed, flat, for each key that was published where it was: its priority and its name
-- Returns  1; 0 if this shard knows of a later list
--
-- What is published is told again from here, in the same call, so that nothing stands between a count and its being told.

local FIRST_RECORD = 5
if not goes_by(KEYS[1], tonumber(ARGV[1])) then
  return 0
end
local flat, at = cmsgpack.unpack(ARGV[2]), 1
for index = FIRST_RECORD, #KEYS do
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
local published = cmsgpack.unpack(ARGV[3])
for place = 1, #published, 2 do
  note_change(2, published[place], published[place + 1])
end
return 1
