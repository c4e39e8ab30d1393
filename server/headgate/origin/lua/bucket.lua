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
  if not may_forget(key) then
    return
  end
  local fields = call('HGETALL', key)
  for i = 1, #fields, 2 do
    if fields[i] ~= mine and string.sub(fields[i], 1, 1) == 'd' then
      local _, _, generation = field_numbers(fields[i + 1])
      if not generation or generation < record.generation - BUCKET_RUN_GENERATIONS then
        call('HDEL', key, fields[i])
      end
    end
  end
end

local function empty_component(component)
  component.n, component.held, component.generation, component.number = 0, 0, 0, 0
  component.demanded = 0
end

-- A key without a record, full, at this rate.
local function new_bucket(record, rate)
  record.rate, record.ms, record.rest, record.told, record.reset = max(1, rate), 0, 0, 0, 0
  record.refunded = 0
  no_grants(record)
end

local function read_bucket(record, packed)
  local format, rate, ms, rest, generation, sum, previous_sum, told, reset, refunded = parts(packed)
  if format > FORMAT then
    return format
  end
  reset, refunded = reset or 0, refunded or 0
  if min(rate - 1, ms, rest, generation, sum, previous_sum, told, reset, refunded) < 0
    or max(rate, ms, rest, generation, sum, previous_sum, told, reset, refunded) > EXACT then
    return
  end
  record.reset, record.refunded = reset, refunded
  record.rate, record.ms, record.rest, record.told = rate, ms, rest, told
  record.generation, record.sum, record.previous_sum = generation, sum, previous_sum
  return format
end

local function read_bucket_component(component, packed)
  local n, held, generation, number, demanded = parts(packed)
  demanded = demanded or 0
  if min(n, held, generation, number, demanded) < 0 or max(n, held, generation, number, demanded) > EXACT then
    return
  end
  component.n, component.held, component.generation, component.number = n, held, generation, number
  component.demanded = demanded
  return FORMAT
end

bucket_kind.load = function(record, component, key, field, place, limit)
  local packed = try('HMGET', key, 'b', field)
  if packed.err then
    return not_a_record(key, packed.err)
  end
  record.window = terms[place + 3]
  if not packed[1] then
    new_bucket(record, limit)
  elseif not readable(key, read_bucket, record, packed[1]) then
    return false
  elseif generation_now > record.generation then
    forget_bucket_runs(record, key, field)
  end
  if packed[2] then
    return readable(key, read_bucket_component, component, packed[2])
  end
  empty_component(component)
  return true
end

-- What a wrong clock wrote lies ahead, and would never age: the arrival time with the grants and
-- components, or those alone.
local function bucket_come_to(record, component, key, latest)
  if record.ms > latest then
    record.ms, record.rest, record.told = 0, 0, 0
    call('DEL', key)
  elseif grants_ahead(record) then
    forget_fields(key, 'd')
  else
    return
  end
  no_grants(record)
  empty_component(component)
  for _, other in pairs(record.components or {}) do
    empty_component(other)
  end
end

-- Whether a report counts here. One of a later reset than is known empties the record first.
local function bucket_belongs(record, component, key, reset)
  if reset > record.reset then
    record.ms, record.rest, record.told, record.reset = 0, 0, 0, reset
    record.refunded = 0
    call('DEL', key)
    no_grants(record)
    empty_component(component)
    for _, other in pairs(record.components or {}) do
      empty_component(other)
    end
  end
  return reset < 0 or reset == record.reset
end

-- Moves the arrival time by what the run admitted and had not reported, at most to `most` requests
-- from now: a full burst, `P` on top of it, and what late costs may owe. Without `P`, what was admitted within grants on top of a
-- full burst would be forgiven at every flush.
local function merge_bucket(
  index, record, component, key, rate, most, total, acknowledged, answered_ms, answered_rest, since, reset
)
  restate(record, rate)
  local latest = after(record, now, 0, most) + record.window
  bucket_come_to(record, component, key, latest)
  if not bucket_belongs(record, component, key, reset) then
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
  if give_back_bucket then
    give_back_bucket(index, record, component, most, before)
  end
  return true
end

local function save_bucket(key, record, field, component)
  local told = record.told
  local needed = max(record.ms + 1, now) + 2 * GENERATION_MS
  if needed > told then
    record.told = needed + EXPIRY_SLACK_MS
  end
  local totals
  if record.refunded > 0 then
    totals = pack(
      FORMAT, record.rate, record.ms, record.rest, record.generation, record.sum, record.previous_sum, record.told,
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
  keep(key, needed, told)
end

bucket_kind.fits = function(report, missing)
  local record = report.record
  if report.limit == 0 then
    return false
  end
  local start, start_rest = later_of(record.ms, record.rest, now, 0)
  local ms, rest = after(record, start, start_rest, missing)
  local full, full_rest = after(record, now, 0, report.burst)
  return ms < full or (ms == full and rest <= full_rest)
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
  save_bucket(report.key, record, report.field, component)
  out[first_answer + index] = pack(component.n, record.ms, record.rest, report.grant, record.reset)
  if told_refunds then
    told_refunds[index] = { component.demanded, 0, record.refunded, 0, 0, 0, 0, 0 }
  end
end

bucket_kind.merge = function(report, index, at, place)
  local record, component = report.record, report.component
  local burst, precision = terms[place + 6], terms[place + 4]
  if burst_caps then
    burst = min(burst, burst_caps[index] or burst)
  end
  report.burst, report.own, report.grant = burst, flat[at + 6] + flat[at + 7], NO_GRANT
  if merge_bucket(
    index, record, component, report.key, report.limit, burst + precision + terms[place + 7], flat[at + 6], flat[at + 8],
    flat[at + 9], flat[at + 10], flat[at + 11], flat[at + 5]
  ) then
    report.grant = renew(record, component, flat[at + 3], flat[at + 4], precision, terms[place + 5])
  end
end

end
