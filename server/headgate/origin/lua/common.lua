-- What the scripts share: exact arithmetic, expiry, and one limit key's window record.
--
-- Names are short here, because they are in every record; the glossary (docs/glossary.md)
-- and the Python that this equals, step for step, have the words:
--   n     own           one run's part of a cell: what it reported or was charged; only grows
--   t     region total  all runs' parts of a cell and l; only grows
--   l     unattributed  the part of t that was counted once and that no n explains: this
--                       server lost it, a node vouches for it; falls as parts come back
--   f     foreign       all other regions' parts of a cell together; only grows
--   ahead_f             the same of the next cell: another region's clock may be ahead
--   previous_n, _t, _l, _f: the same of the cell before
--   seen  the highest t that a node was told, or knows to have been there
--   sent  the most that a node may have told of itself in a cell: n can't have been more
--   held  the allowance that a run may be spending; sum and previous_sum add up all runs' held of
--         this generation and of the one before
--   pressed             for how many generations slow runs get no allowance
--   told  until when Redis was last told to keep the key
--   reset to which reset of the key all of it belongs; 0 if there was none
--   r     refunded      what was given back of t, never more than that; of a run: what was given back to it
--   fr    foreign       what other regions gave back of f; ahead_fr the same of the next cell
--   demanded            what of a run's demands in a window was dealt with
-- Where nothing was given back there is none of these three, neither in a record nor in a table.
--
-- A limit key is one hash. Its values are packed numbers, read with one HMGET and written
-- with one HSET:
--   w             a window's totals: format; sequence; t, l, f; previous t, l, f; generation, sum,
--                 previous sum; told; ahead f; reset; pressed (in format 4); r, previous r, fr, previous fr, ahead fr
--   c<component>  a run's part: sequence, n, previous n, held, generation, call number; r, previous r, demanded,
--                 previous demanded
--   f<region>     another region's part: sequence, current, previous, ahead; what was given back of these three
--   b             a bucket's totals: format; rate; arrival time as ms and rest (in 1/rate ms);
--                 generation, sum, previous sum; told; reset; refunded: by how many requests it was ever put back;
--                 pressed
--   d<component>  a run's part of a bucket: n, held, generation, call number; demanded
-- The same arithmetic in Python: window_record.py, bucket_record.py and allowances.py.
--
-- One key's record concerns one key: whatever stands under a key, no other key of the call is
-- touched by it. What can't be read is answered UNREADABLE (protocol.py).
--
-- Lines that begin with --@check are compiled in under test only.

local call, try, pack, parts = redis.call, redis.pcall, cmsgpack.pack, cmsgpack.unpack

local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

-- What every record begins with. A version reads the formats up to its own and leaves newer ones alone. Format 2 has
-- the reset behind `ahead f` and a bucket's `told`, format 3 refunds behind that; format 4 has allowances beyond P, which
-- older versions would not leave room for, and `pressed`. A record that needs none of it is written in the lowest that
-- holds it, which older versions read.
local FORMAT = 4
local REFUND_FORMAT = 3
local RESET_FORMAT = 2
local PLAIN_FORMAT = 1
-- No format will ever be as high: what begins with more is not a format.
local HIGHEST_FORMAT = 255
-- In an answer's place for `more` (protocol.py).
local UNREADABLE = -2
-- Stands before a record that moves (take_records.lua): nobody reads it.
local SEALED_FORMAT = HIGHEST_FORMAT
-- Of shard time; allowances.py says why.
local GENERATION_MS = 10000
local generation_now = floor(now / GENERATION_MS)
-- Allowances of later ones were given by a clock that was wrong: so far ahead that they would not age.
local latest_generation = generation_now + 1
-- As long as an allowance that is given now may be spent.
local renewed_until = now + 2 * GENERATION_MS
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

-- Numbers as they are packed, each made once per call: most of a record's are in the one before too, and what packing
-- takes is a string for each.
local bytes_of = setmetatable({}, {
  __index = function(known, number)
    local bytes = pack(number)
    known[number] = bytes
    return bytes
  end,
})

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

-- Keys whose records nobody can ever read: they are dropped when the call is over.
local unreadable_keys = {}

-- `read(packed, window)` in safety: the table that it makes; or nothing, and the format if that is newer. It returns the format and the table; the format
-- alone if that is newer; nothing if the rest makes no sense: if one is no count, a number that a double holds exactly. It
-- raises on anything.
local function readable(key, read, packed, window)
  local ok, format, found = pcall(read, packed, window)
  if ok and found and format >= PLAIN_FORMAT and format <= FORMAT and format % 1 == 0 then
    return found
  end
  local newer = ok and type(format) == 'number' and format > FORMAT and format <= HIGHEST_FORMAT
  if newer then
    return nil, format
  end
  unreadable_keys[#unreadable_keys + 1] = key
end

local function read_window(packed, window)
  local format, sequence, t, l, f, previous_t, previous_l, previous_f, generation, sum, previous_sum, told, ahead_f,
    reset, r, previous_r, fr, previous_fr, ahead_fr, last = parts(packed)
  if format > FORMAT then
    return format
  end
  reset = reset or 0
  local pressed, beyond = 0, format == FORMAT
  if beyond then
    pressed, r, previous_r, fr, previous_fr, ahead_fr = r, previous_r, fr, previous_fr, ahead_fr, last
  end
  -- Comparisons one by one: what min and max of so many take is as much as all the rest of reading.
  if not (
    sequence >= 0 and t >= 0 and l >= 0 and f >= 0 and previous_t >= 0 and previous_l >= 0 and previous_f >= 0
    and generation >= 0 and sum >= 0 and previous_sum >= 0 and told >= 0 and ahead_f >= 0 and reset >= 0
    and sequence <= EXACT and t <= EXACT and l <= EXACT and f <= EXACT and previous_t <= EXACT
    and previous_l <= EXACT and previous_f <= EXACT and generation <= EXACT and sum <= EXACT
    and previous_sum <= EXACT and told <= EXACT and ahead_f <= EXACT and reset <= EXACT
    and pressed >= 0 and pressed <= EXACT
  ) then
    return
  end
  local record = {
    window = window, sequence = sequence, told = told, reset = reset,
    t = t, l = l, f = f, previous_t = previous_t, previous_l = previous_l, previous_f = previous_f, ahead_f = ahead_f,
    generation = generation, sum = sum, previous_sum = previous_sum, pressed = pressed, beyond = beyond,
  }
  if r then
    if min(r, previous_r, fr, previous_fr, ahead_fr) < 0 or max(r, previous_r, fr, previous_fr, ahead_fr) > EXACT then
      return
    end
    record.refunds = { r = r, previous_r = previous_r, fr = fr, previous_fr = previous_fr, ahead_fr = ahead_fr }
  end
  return format, record
end

-- The key's record as it was written, or a new one in window `sequence`; nothing if it can't be read.
local function load_window(key, packed, window, sequence)
  if packed then
    return readable(key, read_window, packed, window)
  end
  return {
    window = window, sequence = sequence, told = 0, reset = 0,
    t = 0, l = 0, f = 0, previous_t = 0, previous_l = 0, previous_f = 0, ahead_f = 0,
    generation = 0, sum = 0, previous_sum = 0, pressed = 0, beyond = false,
  }
end

-- The last time to live, and its digits: keys of one window have the same, and Redis takes long to write a number.
local ttl_ms, ttl_digits

-- Have Redis keep the key so long.
local function keep(key, ms)
  if ms ~= ttl_ms then
    ttl_ms, ttl_digits = ms, string.format('%.0f', min(ms, LONGEST_TTL_MS))
  end
  call('PEXPIRE', key, ttl_digits)
end

-- Write the totals and, if there is one, another field. Redis is told to keep the key only when what it was told is not
-- enough.
local function save_window(key, record, field, value)
  local bytes, sequence, told, ahead_f, reset = bytes_of, record.sequence, record.told, record.ahead_f, record.reset
  local needed = (sequence + (ahead_f > 0 and 3 or 2)) * record.window
  if needed < renewed_until then
    needed = renewed_until
  end
  local longer = needed > told
  if longer then
    told = needed + EXPIRY_SLACK_MS
    record.told = told
  end
  local format, later, refunds = PLAIN_FORMAT, '', record.refunds
  if record.beyond then
    format, later = FORMAT, bytes[reset] .. bytes[record.pressed]
  elseif reset > 0 then
    format, later = RESET_FORMAT, bytes[reset]
  end
  if refunds and refunds.r + refunds.previous_r + refunds.fr + refunds.previous_fr + refunds.ahead_fr > 0 then
    if not record.beyond then
      format, later = REFUND_FORMAT, bytes[reset]
    end
    later = later .. pack(refunds.r, refunds.previous_r, refunds.fr, refunds.previous_fr, refunds.ahead_fr)
  end
  local totals = bytes[format] .. bytes[sequence] .. bytes[record.t] .. bytes[record.l] .. bytes[record.f]
    .. bytes[record.previous_t] .. bytes[record.previous_l] .. bytes[record.previous_f] .. bytes[record.generation]
    .. bytes[record.sum] .. bytes[record.previous_sum] .. bytes[told] .. bytes[ahead_f] .. later
  if field then
    call('HSET', key, 'w', totals, field, value)
  else
    call('HSET', key, 'w', totals)
  end
  if longer then
    keep(key, told - now)
  end
end
