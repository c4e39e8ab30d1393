-- One report of a limit key under GCRA (bucket_record.py). An arrival time is whole
-- milliseconds and a rest in 1/rate ms.
--
-- Nothing of this is made for a call without buckets: making functions is what a small call
-- spends most of its time with.

if flat[2] > 0 then

-- A run is forgotten after ten minutes without a call, which is later than any retry.
local BUCKET_RUN_GENERATIONS = 60

local function later_of(ms, rest, other_ms, other_rest)
  if other_ms > ms or (other_ms == ms and other_rest > rest) then
    return other_ms, other_rest
  end
  return ms, rest
end

-- The arrival time `cost` requests later.
local function after(record, ms, rest, cost)
  local whole, left = multiply_divide(cost, record.window, rest, record.rate)
  return ms + whole, left
end

-- The arrival time `cost` requests earlier; 0 if there was no such time.
local function before(record, ms, rest, cost)
  local whole, left = multiply_divide(cost, record.window, 0, record.rate)
  -- One that was told at another rate may have a rest that is too large for this one.
  ms, rest = ms - whole, min(rest, record.rate - 1) - left
  if rest < 0 then
    ms, rest = ms - 1, rest + record.rate
  end
  if ms < 0 then
    return 0, 0
  end
  return ms, rest
end

local function restate(record, rate)
  if rate == 0 or rate == record.rate then
    return
  end
  local rest, more = multiply_divide(record.rest, rate, 0, record.rate)
  if more > 0 then
    rest = rest + 1
  end
  local whole = floor(rest / rate)
  record.ms, record.rest, record.rate = record.ms + whole, rest - whole * rate, rate
end

local function forget_bucket_runs(record, key, mine)
  if not seldom.may_forget(key) then
    return
  end
  local fields = call('HGETALL', key)
  for i = 1, #fields, 2 do
    if fields[i] ~= mine and string.sub(fields[i], 1, 1) == 'd' then
      local _, _, generation = seldom.field_numbers(fields[i + 1])
      if not generation or generation < record.generation - BUCKET_RUN_GENERATIONS then
        call('HDEL', key, fields[i])
      end
    end
  end
end

local function new_bucket_component()
  return { n = 0, held = 0, generation = 0, number = 0, demanded = 0 }
end

local function empty_bucket_component(component)
  component.n, component.held, component.generation, component.number = 0, 0, 0, 0
  component.demanded = 0
end

-- The record of a key that has none: full, at this rate.
local function new_bucket(rate, window)
  return {
    rate = max(1, rate), window = window, ms = 0, rest = 0, told = 0, reset = 0, refunded = 0,
    generation = 0, sum = 0, previous_sum = 0, pressed = 0, beyond = false,
  }
end

local function read_bucket(packed, window)
  local format, rate, ms, rest, generation, sum, previous_sum, told, reset, refunded, pressed = parts(packed)
  if format > FORMAT then
    return format
  end
  reset, refunded, pressed = reset or 0, refunded or 0, pressed or 0
  if min(rate - 1, ms, rest, generation, sum, previous_sum, told, reset, refunded, pressed) < 0
    or max(rate, ms, rest, generation, sum, previous_sum, told, reset, refunded, pressed) > EXACT then
    return
  end
  return format, {
    rate = rate, window = window, ms = ms, rest = rest, told = told, reset = reset, refunded = refunded,
    generation = generation, sum = sum, previous_sum = previous_sum, pressed = pressed, beyond = format == FORMAT,
  }
end

local function read_bucket_component(packed)
  local n, held, generation, number, demanded = parts(packed)
  demanded = demanded or 0
  if min(n, held, generation, number, demanded) < 0 or max(n, held, generation, number, demanded) > EXACT then
    return
  end
  return FORMAT, { n = n, held = held, generation = generation, number = number, demanded = demanded }
end

bucket_kind.load = function(key, terms, limit, record)
  local packed = try('HMGET', key, 'b', terms.field)
  if packed.err then
    return not_a_record(key, packed.err)
  end
  if list_number and not record and not packed[1] and not may_begin(key) then
    return ELSEWHERE
  end
  if not record and packed[1] then
    local format
    record, format = readable(key, read_bucket, packed[1], terms.window)
    if not record then
      return format == SEALED_FORMAT and SEALED or nil
    end
    if generation_now > record.generation then
      forget_bucket_runs(record, key, terms.field)
    end
  end
  record = record or new_bucket(limit, terms.window)
  if packed[2] then
    return record, readable(key, read_bucket_component, packed[2])
  end
  return record, new_bucket_component()
end

local function empty_bucket(report)
  seldom.no_allowances(report.record)
  local other = report
  while other do
    empty_bucket_component(other.component)
    other = other.earlier
  end
end

-- What a wrong clock wrote lies ahead, and would never age: the arrival time with the allowances and
-- components, or those alone.
local function bucket_come_to(report, latest)
  local record = report.record
  if record.ms > latest then
    record.ms, record.rest, record.told = 0, 0, 0
    call('DEL', KEYS[report.index])
  elseif record.generation > latest_generation then
    seldom.forget_fields(KEYS[report.index], 'd')
  else
    return
  end
  empty_bucket(report)
end

-- Whether a report counts here. One of a later reset than is known empties the record first.
local function bucket_belongs(report, reset)
  local record = report.record
  if reset > record.reset then
    record.ms, record.rest, record.told, record.reset = 0, 0, 0, reset
    record.refunded = 0
    call('DEL', KEYS[report.index])
    empty_bucket(report)
  end
  return reset < 0 or reset == record.reset
end

-- Moves the arrival time by what the run admitted and had not reported, at most to `most` requests
-- from now: a full burst, `P` on top of it, and what late costs may owe. Without `P`, what was admitted out of allowances on top of a
-- full burst would be forgiven at every flush.
local function merge_bucket(report, most, reset, total, acknowledged, answered_ms, answered_rest, since)
  local record, component, index = report.record, report.component, report.index
  restate(record, report.limit)
  local latest = after(record, now, 0, most) + record.window
  bucket_come_to(report, latest)
  if not bucket_belongs(report, reset) then
    return false
  end
  if answered_ms <= latest then
    local back = 0
    if bucket_refunds then
      back = bucket_refunds(index, record)
    elseif record.refunded > 0 then
      back = nil
    end
    if back and back > 0 then
      answered_ms, answered_rest = before(record, answered_ms, answered_rest, back)
    end
    if back then
      record.ms, record.rest = later_of(record.ms, record.rest, answered_ms, answered_rest)
    end
  end
  local unmerged = total - max(component.n, acknowledged)
  if unmerged > 0 then
    local start, start_rest = later_of(record.ms, record.rest, since, 0)
    local ms, rest = after(record, start, start_rest, unmerged)
    local full, full_rest = after(record, now, 0, most)
    if ms > full or (ms == full and rest > full_rest) then
      ms, rest = full, full_rest
    end
    record.ms, record.rest = later_of(record.ms, record.rest, ms, rest)
  end
  component.n = max(component.n, total)
  if refund_bucket then
    refund_bucket(index, record, component, most, before)
  end
  return true
end

local function save_bucket(key, record, field, component)
  local needed = max(record.ms + 1, now) + 2 * GENERATION_MS
  local longer = needed > record.told
  if longer then
    record.told = needed + EXPIRY_SLACK_MS
  end
  local totals
  if record.beyond then
    totals = pack(
      FORMAT, record.rate, record.ms, record.rest, record.generation, record.sum, record.previous_sum, record.told,
      record.reset, record.refunded, record.pressed
    )
  elseif record.refunded > 0 then
    totals = pack(
      REFUND_FORMAT, record.rate, record.ms, record.rest, record.generation, record.sum, record.previous_sum, record.told,
      record.reset, record.refunded
    )
  elseif record.reset == 0 then
    totals = pack(
      PLAIN_FORMAT, record.rate, record.ms, record.rest, record.generation, record.sum, record.previous_sum, record.told
    )
  else
    totals = pack(
      RESET_FORMAT, record.rate, record.ms, record.rest, record.generation, record.sum, record.previous_sum, record.told,
      record.reset
    )
  end
  local value
  if component.demanded > 0 then
    value = pack(component.n, component.held, component.generation, component.number, component.demanded)
  else
    value = pack(component.n, component.held, component.generation, component.number)
  end
  call('HSET', key, 'b', totals, field, value)
  if longer then
    keep(key, record.told - now)
  end
end

-- Whole requests; -1 also where it lets nothing in.
bucket_kind.room = function(report)
  local record = report.record
  if report.limit == 0 then
    return -1
  end
  local ms, rest = later_of(record.ms, record.rest, now, 0)
  local window = record.window
  local whole = floor(rest / window)
  local used, left = multiply_divide(ms - now, record.rate, rest - whole * window, window)
  return report.burst - used - whole - (left > 0 and 1 or 0)
end

bucket_kind.charge = function(report, missing)
  local record = report.record
  if missing > 0 then
    local start, start_rest = later_of(record.ms, record.rest, now, 0)
    record.ms, record.rest = after(record, start, start_rest, missing)
  end
  report.component.n = report.component.n + missing
end

bucket_kind.finish = function(report)
  local record, component, index = report.record, report.component, report.index
  if report.more == 0 then
    local burst = report.burst
    if report.terms.most ~= burst then
      prepare(report.terms, burst, max(1, (multiply_divide(burst, record.window, 0, record.rate))))
    end
    offer(report, bucket_kind.room(report))
  end
  save_bucket(KEYS[index], record, report.terms.field, component)
  answers[index] = pack(component.n, record.ms, record.rest, report.more, report.left, record.reset)
  if told_refunds then
    told_refunds[index] = { component.demanded, 0, record.refunded, 0, 0, 0, 0, 0 }
  end
end

bucket_kind.merge = function(report, at)
  local terms = report.terms
  local burst, precision = terms.burst, terms.precision
  if burst_caps then
    burst = min(burst, burst_caps[report.index] or burst)
  end
  report.burst = burst
  if merge_bucket(
    report, burst + precision + terms.debt, flat[at + 4], flat[at + 5], flat[at + 7], flat[at + 8], flat[at + 9],
    flat[at + 10]
  ) and keep_allowance(report.record, report.component, flat[at + 1], terms.leaving and 0 or flat[at + 2]) then
    report.more, report.want = 0, terms.leaving and 0 or flat[at + 3]
  end
end

end
