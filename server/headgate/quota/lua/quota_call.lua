-- The quotas of a call (call.py): cut to their slices before anything is charged.
--
-- ARGV[4]  packed: the place in KEYS of the quota hash, which the busy keys
--          follow; then per quota, flat: its report (from 1 on), name, kind,
--          limit, burst, window, offered, floor, busy at, came by
-- Returns  after all else, per quota: the share in force, until when

local quotas = parts(ARGV[4])
local hash, busy = KEYS[quotas[1]], KEYS[quotas[1] + 1]
local shares = {}

local function note_busy(name)
  if not call('ZSCORE', busy, name) and call('ZCARD', busy) >= MOST_BUSY then
    call('HINCRBY', hash, 'x', 1)
    return
  end
  call('ZADD', busy, now, name)
  call('PEXPIRE', busy, 86400000)
end

before_reports = function()
  limit_caps, burst_caps = {}, {}
  local fields = { 'd' }
  for at = 2, #quotas, 10 do
    fields[#fields + 1] = 's' .. quotas[at + 1]
  end
  local known = call('HMGET', hash, unpack(fields))
  for at = 2, #quotas, 10 do
    local index = (at + 8) / 10
    local share, until_ms, expired = share_in_force(known[1], known[index + 1], quotas[at + 7], quotas[at + 5],
      quotas[at + 9])
    shares[index] = { share, until_ms, expired }
    limit_caps[quotas[at]] = floor(quotas[at + 3] * share / WHOLE)
    burst_caps[quotas[at]] = floor(quotas[at + 4] * share / WHOLE)
  end
end

-- When the records are written, and so will expire.
after_reports = function()
  for at = 2, #quotas, 10 do
    local index, key = (at + 8) / 10, KEYS[quotas[at]]
    local share = shares[index]
    local window = quotas[at + 5]
    local found = try('HGET', key, 'q')
    if type(found) ~= 'table' then
      local _, _, _, known, span, current, previous, noted = some_parts(found)
      if known ~= window or not noted then
        span, current, previous, noted = 0, 0, 0, 0
      end
      local length
      span, current, previous, length = roll_offered(window, span, current, previous)
      current = current + quotas[at + 6]
      local is_busy = in_span(current, previous, length) >= quotas[at + 8]
      if (is_busy or share[3]) and math.abs(now - noted) >= NOTED_EVERY_MS then
        noted = now
        note_busy(quotas[at + 1])
      end
      if call('EXISTS', key) == 1 then
        call('HSET', key, 'q', pack(
          quotas[at + 2], quotas[at + 3], quotas[at + 4], window, span, current, previous, noted
        ))
      end
    end
    add(share[1], share[2])
  end
end
