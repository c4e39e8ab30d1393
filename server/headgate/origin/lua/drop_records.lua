-- Drop sealed records that are open where they belong (move_records.py).
--
-- KEYS     the list (change_list.lua); the indexes of published keys (outbox.lua), by priority; then the records
-- ARGV     the list's number; packed, flat: priority and name of each published key that is told from elsewhere now
-- Returns  1; 0 if this shard has another list

if tonumber(redis.call('HMGET', KEYS[1], 'f')[1] or 0) ~= tonumber(ARGV[1]) then
  return 0
end
for index = 4, #KEYS do
  if redis.call('HMGET', KEYS[index], 's')[1] then
    redis.call('DEL', KEYS[index])
  end
end
local published = cmsgpack.unpack(ARGV[2])
for at = 1, #published, 2 do
  redis.call('ZREM', KEYS[2 + published[at]], published[at + 1])
end
return 1
