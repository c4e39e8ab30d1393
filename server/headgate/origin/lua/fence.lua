-- The list of shards by which somebody goes (placement.py). `list` is the key of the list (change_list.lua).

-- True if no later one was heard of here. From then on nothing begins here by an earlier one.
local function goes_by(list, number)
  local fence = tonumber(redis.call('HMGET', list, 'f')[1] or 0)
  if fence < number then
    redis.call('HSET', list, 'f', string.format('%.0f', number))
    redis.call('PEXPIRE', list, 86400000)
  end
  return fence <= number
end

-- True if it is the latest that was heard of here. Whoever has no say in the list asks so.
local function has_list(list, number)
  return tonumber(redis.call('HMGET', list, 'f')[1] or 0) == number
end
