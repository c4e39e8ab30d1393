-- One turn of the keeper on this shard (step.py).
--
-- KEYS     the quota hash; the busy keys; the list of shards (change_list.lua); then one record per share
-- ARGV[1]  packed: fence; generation; drawn; for how many ms shares hold, with what was taken and without
--          (-1: as it was); the share of keys without one, since how long that is settled; how many busy keys to name;
--          the number of the list by which keys are placed;
--          then per share, flat: name, share, lasting, for how many ms
-- ARGV[2]  packed: names that have no share of their own any more
-- Returns  the shard's time; 1 or 0 where nothing was done; generation; how many busy keys were not noted;
--          packed, flat, six per share: kind, limit, burst, window, used, offered (a kind of -1: it can't be
--          said); then the busy keys' names

local hash, busy = KEYS[1], KEYS[2]
local step = parts(ARGV[1])
local fence, drawn, taken_ms, until_ms = step[1], step[3], step[4], step[5]
local FIRST_SHARE = 10
local KEPT_MS = 30 * 86400000
local FIXED, BUCKET = 1, 2

call('HSETNX', hash, 'g', drawn)
local known = call('HMGET', hash, 'g', 'n', 'x')
local latest = has_list(KEYS[3], step[9])
if known[1] ~= step[2] or (tonumber(known[2]) or 0) > fence or not latest then
  return { now, 0, known[1], 0, pack({}) }
end
call('HSET', hash, 'n', string.format('%.0f', fence))
call('PEXPIRE', hash, KEPT_MS)
for at = FIRST_SHARE, #step, 4 do
  call('HSET', hash, 's' .. step[at], pack(step[at + 1], step[at + 2], now + step[at + 3]))
end
for _, name in ipairs(parts(ARGV[2])) do
  call('HDEL', hash, 's' .. name)
end
if until_ms >= 0 then
  call('HSET', hash, 'd', pack(now + taken_ms, now + until_ms, step[6], max(0, now - step[7]), step[9]))
end

-- What is in use, by the record; nothing where that can't be said.
local function used_of(key, kind, values, window)
  if kind == BUCKET then
    if values[3] then
      return nil
    end
    local _, _, ms = some_parts(values[2])
    return values[2] and (ms and max(0, ms - now)) or (not values[2] and 0 or nil)
  end
  if values[2] then
    return nil
  end
  if not values[3] then
    return 0
  end
  local record = readable(key, read_window, values[3], window)
  if not record then
    return nil
  end
  local at = max(now, record.sequence * window)
  local ago = floor(at / window) - record.sequence
  local current = ago == 0 and record.t or 0
  local previous = ago == 0 and record.previous_t or ago == 1 and record.t or 0
  if kind == FIXED then
    return current
  end
  return current + weighted(previous, window - at % window, window)
end

local seen = {}
for at = FIRST_SHARE, #step, 4 do
  local index = (at - FIRST_SHARE) / 4
  local key, to = KEYS[index + 4], 6 * index
  local values = try('HMGET', key, 'q', 'b', 'w')
  for offset = 1, 6 do
    seen[to + offset] = 0
  end
  if values.err then
    seen[to + 1] = -1
  else
    local kind, limit, burst, window, span, current, previous, noted = some_parts(values[1])
    if noted then
      local used = used_of(key, kind, values, window)
      if used then
        local length
        span, current, previous, length = roll_offered(window, span, current, previous)
        seen[to + 1], seen[to + 2], seen[to + 3], seen[to + 4] = kind, limit, burst, window
        seen[to + 5] = used
        seen[to + 6] = multiply_divide(in_span(current, previous, length), window, 0, length)
      else
        seen[to + 1] = -1
      end
    elseif values[2] or values[3] then
      seen[to + 1] = -1
    end
  end
end

call('ZREMRANGEBYSCORE', busy, '-inf', now - BUSY_MS)
call('ZREMRANGEBYSCORE', busy, now + BUSY_MS, '+inf')
local names = step[8] > 0 and call('ZREVRANGE', busy, 0, step[8] - 1) or {}
return { now, 1, known[1], tonumber(known[3]) or 0, pack(seen), unpack(names) }
