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

-- An error of `try` is one of a single record, unless the user may not read any: that is raised, with the command's name.
local function raise_if_forbidden(text)
  if string.find(text, "can't run this command", 1, true) or string.find(text, 'ACL failure', 1, true)
    or string.find(text, 'NOPERM', 1, true) then
    error("-NOPERM this user has no permissions to run the 'hmget' command", 0)
  end
end
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

-- What every record begins with. A version reads the formats up to its own and leaves newer ones alone. Format 2 has
-- the reset behind `ahead f` and a bucket's `told`, format 3 refunds behind that; format 4 has allowances beyond P, which
-- older versions would not leave room for, and `pressed`. A record that needs none of it is written in
-- the lowest that holds it, which older versions read.
local FORMAT = 4
local REFUND_FORMAT = 3
local RESET_FORMAT = 2
local PLAIN_FORMAT = 1
-- No format will ever be as high: what begins with more is not a format.
local HIGHEST_FORMAT = 255
-- In an answer's place for `more` (protocol.py).
local UNREADABLE = -2
-- Of shard time; allowances.py says why.
local GENERATION_MS = 10000
local generation_now = floor(now / GENERATION_MS)
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

-- The weight of a previous window's count when `left` ms of the current one are left.
local function weighted(previous, left, window)
  return (multiply_divide(previous, left, 0, window))
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

-- Keys whose records nobody can ever read: they are dropped when the call is over.
local unreadable_keys = {}

-- `read(packed, window)` in safety: the table that it makes, or nothing. It returns the format and the table; the format
-- alone if that is newer; nothing if the rest makes no sense: if one is no count, a number that a double holds exactly. It
-- raises on anything.
local function readable(key, read, packed, window)
  local ok, format, found = pcall(read, packed, window)
  if ok and found and format >= PLAIN_FORMAT and format <= FORMAT and format % 1 == 0 then
    return found
  end
  local newer = ok and type(format) == 'number' and format > FORMAT and format <= HIGHEST_FORMAT
  if not newer then
    unreadable_keys[#unreadable_keys + 1] = key
  end
end

local function drop_unreadable()
  for index = 1, #unreadable_keys do
    call('DEL', unreadable_keys[index])
  end
end

-- The numbers of a field that this key's other runs or regions wrote; nothing if they make no sense.
local function field_numbers(packed)
  local ok, sequence, current, previous, fourth, generation = pcall(parts, packed)
  if ok and type(sequence) == 'number' and type(current) == 'number' and type(previous) == 'number' then
    return sequence, current, previous, type(fourth) == 'number' and fourth or 0, generation
  end
end

-- Another region's current, previous and next count in the record's cells, from its field.
local function roll_foreign(packed, sequence)
  local known, current, previous, ahead
  if packed then
    known, current, previous, ahead = field_numbers(packed)
  end
  if known == sequence then
    return current, previous, ahead
  elseif known == sequence - 1 then
    return ahead, current, 0
  end
  return 0, known == sequence - 2 and ahead or 0, 0
end

-- Whether a run's field has refunds in either of the record's cells.
local function has_refunds(record, packed)
  local ok, sequence, _, _, _, _, _, r, previous_r, demanded, previous_demanded = pcall(parts, packed)
  if not ok or not previous_demanded then
    return false
  end
  return (sequence == record.sequence and r + previous_r + demanded + previous_demanded > 0)
    or (sequence == record.sequence - 1 and r + demanded > 0)
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
      local sequence, current, previous, ahead, generation = field_numbers(fields[i + 1])
      local counts = (sequence == record.sequence and (current > 0 or previous > 0))
        or (sequence == record.sequence - 1 and (current > 0 or (kind == 'f' and ahead > 0)))
      local idle = type(generation) ~= 'number' or generation < record.generation - 1
      if not counts and (kind == 'f' or idle) and not (kind == 'c' and has_refunds(record, fields[i + 1])) then
        call('HDEL', key, field)
      end
    end
  end
end

local function forget_fields(key, kind)
  local fields = call('HKEYS', key)
  for i = 1, #fields do
    if string.sub(fields[i], 1, 1) == kind then
      call('HDEL', key, fields[i])
    end
  end
end

local function no_allowances(record)
  record.generation, record.sum, record.previous_sum, record.pressed = 0, 0, 0, 0
  record.beyond = false
end

-- Whether allowances were given by a clock that was wrong: so far ahead that they would not age.
local function allowances_ahead(record)
  return record.generation > generation_now + 1
end

local function empty_window(record, sequence)
  record.sequence, record.told = sequence, 0
  record.t, record.l, record.f = 0, 0, 0
  record.previous_t, record.previous_l, record.previous_f = 0, 0, 0
  record.ahead_f = 0
  record.refunds = nil
  no_allowances(record)
end

-- The refunds of a record, to be changed: there are some from now on.
local function refunds_of(record)
  local refunds = record.refunds
  if not refunds then
    refunds = { r = 0, previous_r = 0, fr = 0, previous_fr = 0, ahead_fr = 0 }
    record.refunds = refunds
  end
  return refunds
end

local function roll_refunds(refunds, by)
  if by == 1 then
    refunds.previous_r, refunds.previous_fr = refunds.r, refunds.fr
    refunds.fr = refunds.ahead_fr
  else
    refunds.previous_r, refunds.previous_fr = 0, by == 2 and refunds.ahead_fr or 0
    refunds.fr = 0
  end
  refunds.r, refunds.ahead_fr = 0, 0
end

-- Come to the shard's time. Cells roll over lazily; a record one window ahead waits, one that is
-- further ahead was written by a wrong clock and begins anew. False: the key's components are gone.
local function come_to(record, key, mine)
  local sequence, known = floor(now / record.window), record.sequence
  if sequence > known then
    if sequence == known + 1 then
      record.previous_t, record.previous_l, record.previous_f = record.t, record.l, record.f
    else
      record.previous_t, record.previous_l = 0, 0
      record.previous_f = sequence == known + 2 and record.ahead_f or 0
    end
    record.t, record.l, record.f = 0, 0, sequence == known + 1 and record.ahead_f or 0
    record.ahead_f = 0
    record.sequence = sequence
    if record.refunds then
      roll_refunds(record.refunds, sequence - known)
    end
    if known > 0 then
      forget_the_gone(record, key, mine)
    end
  elseif sequence < known - 1 then
    call('DEL', key)
    empty_window(record, sequence)
    return false
  elseif allowances_ahead(record) then
    -- The counts stay; who they were of is gone with those who lie ahead.
    record.l, record.previous_l = record.t, record.previous_t
    if record.refunds then
      record.refunds.r, record.refunds.previous_r = 0, 0
    end
    no_allowances(record)
    forget_fields(key, 'c')
    return false
  end
  return true
end

-- The record of a key that has none, in the shard's window.
local function new_window(window)
  return {
    window = window, sequence = (now - now % window) / window, told = 0, reset = 0,
    t = 0, l = 0, f = 0, previous_t = 0, previous_l = 0, previous_f = 0, ahead_f = 0,
    generation = 0, sum = 0, previous_sum = 0, pressed = 0, beyond = false, before_t = 0, before_previous_t = 0,
  }
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
    generation = generation, sum = sum, previous_sum = previous_sum, pressed = pressed, beyond = beyond, before_t = 0,
    before_previous_t = 0,
  }
  if r then
    if min(r, previous_r, fr, previous_fr, ahead_fr) < 0 or max(r, previous_r, fr, previous_fr, ahead_fr) > EXACT then
      return
    end
    record.refunds = { r = r, previous_r = previous_r, fr = fr, previous_fr = previous_fr, ahead_fr = ahead_fr }
  end
  return format, record
end

-- The key's record as it was written, or a new one; nothing if it can't be read.
local function load_window(key, packed, window)
  if packed then
    return readable(key, read_window, packed, window)
  end
  return new_window(window)
end

-- The time of a key: the shard's, or the beginning of a window that its clock has yet to reach.
local function time_of(record)
  return max(now, record.sequence * record.window)
end

-- The last time to live, and its digits: keys of one window have the same, and Redis takes long to write a number.
local ttl_ms, ttl_digits

-- Let the key live at least until `needed`: told only when what was told is not enough.
local function keep(key, needed, told)
  if needed > told then
    local ms = min(needed + EXPIRY_SLACK_MS - now, LONGEST_TTL_MS)
    if ms ~= ttl_ms then
      ttl_ms, ttl_digits = ms, string.format('%.0f', ms)
    end
    call('PEXPIRE', key, ttl_digits)
  end
end

-- Write the totals and, if there is one, another field.
local function save_window(key, record, field, value)
  local before, ahead_f, reset, refunds = record.told, record.ahead_f, record.reset, record.refunds
  local needed = (record.sequence + (ahead_f > 0 and 3 or 2)) * record.window
  if needed < now + 2 * GENERATION_MS then
    needed = now + 2 * GENERATION_MS
  end
  local told = needed > before and needed + EXPIRY_SLACK_MS or before
  record.told = told
  local format = reset == 0 and PLAIN_FORMAT or RESET_FORMAT
  local added = reset > 0 and bytes_of[reset] or ''
  if record.beyond then
    format, added = FORMAT, bytes_of[reset] .. bytes_of[record.pressed]
  end
  if refunds and refunds.r + refunds.previous_r + refunds.fr + refunds.previous_fr + refunds.ahead_fr > 0 then
    format = record.beyond and FORMAT or REFUND_FORMAT
    added = (record.beyond and added or bytes_of[reset])
      .. pack(refunds.r, refunds.previous_r, refunds.fr, refunds.previous_fr, refunds.ahead_fr)
  end
  local totals = bytes_of[format] .. bytes_of[record.sequence] .. bytes_of[record.t] .. bytes_of[record.l] .. bytes_of[record.f]
    .. bytes_of[record.previous_t] .. bytes_of[record.previous_l] .. bytes_of[record.previous_f] .. bytes_of[record.generation]
    .. bytes_of[record.sum] .. bytes_of[record.previous_sum] .. bytes_of[told] .. bytes_of[ahead_f] .. added
  if field then
    call('HSET', key, 'w', totals, field, value)
  else
    call('HSET', key, 'w', totals)
  end
  keep(key, needed, before)
end
