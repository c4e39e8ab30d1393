-- Drop sealed records that are open where they belong (move_records.py).
--
-- KEYS     the list (change_list.lua); then the records
-- ARGV     the list's number
-- Returns  1; 0 if this shard has another list

if tonumber(redis.call('HMGET', KEYS[1], 'f')[1] or 0) ~= tonumber(ARGV[1]) then
  return 0
end
for index = 2, #KEYS do
  if redis.call('HMGET', KEYS[index], 's')[1] then
    redis.call('DEL', KEYS[index])
  end
end
return 1
