-- What the scripts share: exact arithmetic, expiry, and one limit key's window record.
--
-- A limit key is one hash. Its values are packed numbers, read with one HMGET and written
-- with one HSET:
--   w             a window's totals: sequence; t, l, f of the current and the previous
--                 cell; the generation of grants and its two sums; when the key expires
--   c<component>  a run's part: sequence, n, previous n, held, generation, call number
--   f<region>     another region's part: sequence, current, previous
--   b             a bucket's totals: rate; arrival time, ms and rest; generation and sums;
--                 when the key expires
--   d<component>  a run's part of a bucket: n, held, generation, call number
-- Step for step this is window_record.py, bucket_record.py and grants.py.
--
-- Lines that begin with --@check are compiled in under test only.

local call, pack, parts = redis.call, cmsgpack.pack, cmsgpack.unpack
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

-- Of shard time; grants.py says why.
local GENERATION_MS = 10000
-- How much longer than needed a key is kept, so that Redis is not told at every report.
local EXPIRY_SLACK_MS = 10000
-- 30,000 years: no TTL is longer; far below where Redis refuses the number.
local LONGEST_TTL_MS = 1e15
-- Below this a double counts every integer.
local EXACT = 9007199254740992
-- The digit of long multiplication, 2^13: twice that times a window (at most ten years, under 2^39 ms) is EXACT.
local DIGIT = 8192
-- Smaller hashes are not worth looking through for runs that are gone.
local SMALL_HASH = 8
-- How many fields one script looks through, so that it stays under a millisecond; one key is
-- always looked through, whatever its size.
local LOOK_THROUGH = 512

-- floor((a * b + c) / d) and the remainder, exact also where a * b is not. Both b and d are
-- less than 2^39, c is less than d, and the result is less than 2^53. (rules/limits.py sees to both.)
local function multiply_divide(a, b, c, d)
  local product = a * b + c
  if product < EXACT then
    local whole = floor(product / d)
    return whole, product - whole * d
  end
  local high = floor(a / DIGIT)
  local whole, rest = multiply_divide(high, b, 0, d)
  local step = rest * DIGIT + (a - high * DIGIT) * b
  local more = floor(step / d)
  rest = step - more * d + c
  whole = whole * DIGIT + more
  if rest >= d then
    return whole + 1, rest - d
  end
  return whole, rest
end

local looked_through = 0

-- Whether this key's fields may be looked through for what is gone.
local function may_forget(key)
  local fields = call('HLEN', key)
  if fields <= SMALL_HASH or (looked_through > 0 and looked_through + fields > LOOK_THROUGH) then
    return false
  end
  looked_through = looked_through + fields
  return true
end

-- Runs and regions with nothing in either cell; runs only when they have not called for two
-- generations. `mine` is the field that is about to be written.
local function forget_the_gone(record, key, mine)
  if not may_forget(key) then
    return
  end
  local fields = call('HGETALL', key)
  for i = 1, #fields, 2 do
    local field = fields[i]
    local kind = string.sub(field, 1, 1)
    if field ~= mine and (kind == 'c' or kind == 'f') then
      local sequence, current, previous, _, generation = parts(fields[i + 1])
      local counts = (sequence == record.sequence and (current > 0 or previous > 0))
        or (sequence == record.sequence - 1 and current > 0)
      if not counts and (kind == 'f' or generation < record.generation - 1) then
        call('HDEL', key, field)
      end
    end
  end
end

-- Cells roll over lazily, and only forwards.
local function roll_window(record, now, key, mine)
  local sequence = floor(now / record.window)
  local known = record.sequence
  if sequence <= known then
    return
  end
  if sequence == known + 1 then
    record.previous_t, record.previous_l, record.previous_f = record.t, record.l, record.f
  else
    record.previous_t, record.previous_l, record.previous_f = 0, 0, 0
  end
  record.t, record.l, record.f = 0, 0, 0
  record.sequence = sequence
  if known > 0 then
    forget_the_gone(record, key, mine)
  end
end

local function load_window(record, packed)
  if packed then
    record.sequence, record.t, record.l, record.f, record.previous_t, record.previous_l, record.previous_f,
      record.generation, record.sum, record.previous_sum, record.told = parts(packed)
  else
    record.sequence, record.t, record.l, record.f, record.previous_t, record.previous_l, record.previous_f,
      record.generation, record.sum, record.previous_sum, record.told = 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
  end
end

-- Let the key live at least until `needed`: told only when what was told is not enough.
local function keep(key, needed, told)
  if needed > told then
    call('PEXPIRE', key, min(needed + EXPIRY_SLACK_MS - now, LONGEST_TTL_MS))
  end
end

-- Write the totals and, if there is one, another field.
local function save_window(key, record, field, value)
  local told = record.told
  local needed = max((record.sequence + 2) * record.window, now + 2 * GENERATION_MS)
  if needed > told then
    record.told = needed + EXPIRY_SLACK_MS
  end
  local totals = pack(
    record.sequence, record.t, record.l, record.f, record.previous_t, record.previous_l, record.previous_f,
    record.generation, record.sum, record.previous_sum, record.told
  )
  if field then
    call('HSET', key, 'w', totals, field, value)
  else
    call('HSET', key, 'w', totals)
  end
  keep(key, needed, told)
end
