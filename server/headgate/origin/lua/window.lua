-- One report of a limit key under a sliding or fixed window (window_record.py).

local function new_component(sequence)
  return { sequence = sequence, n = 0, previous_n = 0, held = 0, generation = 0, number = 0 }
end

local function empty_component(component)
  component.n, component.previous_n = 0, 0
  component.held, component.generation, component.number = 0, 0, 0
  component.back = nil
end

local function read_component(packed)
  local sequence, n, previous_n, held, generation, number, r, previous_r, demanded, previous_demanded = parts(packed)
  if not (
    sequence >= 0 and n >= 0 and previous_n >= 0 and held >= 0 and generation >= 0 and number >= 0
    and sequence <= EXACT and n <= EXACT and previous_n <= EXACT and held <= EXACT and generation <= EXACT
    and number <= EXACT
  ) then
    return
  end
  local component = {
    sequence = sequence, n = n, previous_n = previous_n, held = held, generation = generation, number = number,
  }
  if r then
    if min(r, previous_r, demanded, previous_demanded) < 0 or max(r, previous_r, demanded, previous_demanded) > EXACT then
      return
    end
    component.back = { r = r, previous_r = previous_r, demanded = demanded, previous_demanded = previous_demanded }
  end
  return FORMAT, component
end

local function roll_component(component, sequence)
  local follows = component.sequence == sequence - 1
  component.n, component.previous_n = 0, follows and component.n or 0
  local back = component.back
  if back then
    back.previous_r, back.previous_demanded = follows and back.r or 0, follows and back.demanded or 0
    back.r, back.demanded = 0, 0
  end
end

window_kind.load = function(key, field, place, _, record)
  local packed = try('HMGET', key, 'w', field)
  if packed.err then
    return not_a_record(key, packed.err)
  end
  local mine = packed[2]
  if not record then
    record = load_window(key, packed[1], terms[place + 3])
    if not record then
      return
    elseif packed[1] then
      mine = come_to(record, key, field) and mine
      record.before_t, record.before_previous_t = record.t, record.previous_t
    end
  end
  if not mine then
    return record, new_component(record.sequence)
  end
  local component = readable(key, read_component, mine)
  if component and component.sequence ~= record.sequence then
    roll_component(component, record.sequence)
  end
  return record, component
end

-- The key was reset later than is known: nothing from before counts.
local function reset_window(report, reset)
  local record = report.record
  record.reset = reset
  call('DEL', KEYS[report.index])
  empty_window(record, record.sequence)
  for other in reports_of_key(report) do
    empty_component(other.component)
  end
  record.before_t = -1  -- told to other regions, whatever counts from here on
end

-- How much of what a component gains from n to m was lost and comes back, and how much is
-- new: what it had sent before may be what was lost.
local function gain(lost, n, m, sent)
  if lost == 0 then
    return 0, m - n
  end
  local explained = min(lost, max(0, min(m, sent) - n))
  return explained, m - n - explained
end

local function merge_current(record, component, total, seen, sent)
  if seen > record.t then
    record.l = record.l + seen - record.t
    record.t = seen
  end
  if total > component.n then
    local explained, gained = gain(record.l, component.n, total, sent)
    record.l, record.t = record.l - explained, record.t + gained
    component.n = total
  end
end

local function merge_previous(record, component, total, seen, sent)
  if seen > record.previous_t then
    record.previous_l = record.previous_l + seen - record.previous_t
    record.previous_t = seen
  end
  if total > component.previous_n then
    local explained, gained = gain(record.previous_l, component.previous_n, total, sent)
    record.previous_l, record.previous_t = record.previous_l - explained, record.previous_t + gained
    component.previous_n = total
  end
end

-- Merge a report's cells, flat from `at` on. Those of the shard's future come again when it is
-- there; older ones no longer matter. Returns the run's own part and its `sent` of the current, and what was spent in the
-- future.
local function merge_cells(record, component, at, cells)
  local own, own_sent, unmerged = 0, 0, 0
  local current = record.sequence
  for cell = at, at + 5 * (cells - 1), 5 do
    local sequence = flat[cell]
    if sequence == current then
      local total, sent = flat[cell + 1], flat[cell + 4]
      merge_current(record, component, total, flat[cell + 3], sent)
      own = own + total + flat[cell + 2]
      if sent > own_sent then
        own_sent = sent
      end
    elseif sequence == current - 1 then
      merge_previous(record, component, flat[cell + 1], flat[cell + 3], flat[cell + 4])
    elseif sequence > current then
      unmerged = unmerged + flat[cell + 1]
    end
  end
  return own, own_sent, unmerged
end

window_kind.merge = function(report, at, place)
  local record, component, reset = report.record, report.component, flat[at + 4]
  if reset > record.reset then
    reset_window(report, reset)
  end
  if reset >= 0 and reset ~= record.reset then
    return  -- of before a reset: it counts nothing, and gets nothing
  end
  local unmerged
  report.own, report.sent, unmerged = merge_cells(record, component, at + 6, flat[at + 5])
  if refund_window then
    refund_window(report.index, record, component)
  end
  local leaving = terms[place + 5] == 1
  if keep_allowance(record, component, flat[at + 1], leaving and 0 or flat[at + 2] + unmerged) then
    report.more, report.want = 0, leaving and 0 or flat[at + 3]
  end
end

-- The room by the report's algorithm; below 0 where more is used than the limit.
local function window_room(report)
  local record = report.record
  local refunds = record.refunds
  local used = record.t + record.f
  if refunds then
    used = used - refunds.r - refunds.fr
  end
  local previous = record.previous_t + record.previous_f
  if previous > 0 and terms[report.place] ~= FIXED then
    local window = record.window
    local left = window - time_of(record) % window
    if refunds then
      previous = previous - refunds.previous_r - refunds.previous_fr
    end
    used = used + weighted(previous, left, window)
  end
  return report.limit - used
end

window_kind.fits = function(report, missing)
  return fits_beside(report.record, missing, window_room(report), terms[report.place + 4])
end

window_kind.charge = function(report, missing)
  local record, component = report.record, report.component
  local n = component.n
  local explained, gained = gain(record.l, n, n + missing, report.sent)
  record.l, record.t = record.l - explained, record.t + gained
  component.n = n + missing
end

local function packed_component(record, component)
  local packed = bytes_of[record.sequence] .. bytes_of[component.n] .. bytes_of[component.previous_n]
    .. bytes_of[component.held] .. bytes_of[component.generation] .. pack(component.number)
  local back = component.back
  if back and back.r + back.previous_r + back.demanded + back.previous_demanded > 0 then
    return packed .. pack(back.r, back.previous_r, back.demanded, back.previous_demanded)
  end
  return packed
end

-- Have other regions told, if the key's totals have changed, and are at the threshold or count there too.
local function publish(record, index, publish_at)
  if record.t == record.before_t and record.previous_t == record.before_previous_t and not record.gave_back then
    return
  end
  if max(record.t, record.previous_t) >= publish_at or record.f + record.previous_f + record.ahead_f > 0
    or record.reset > 0 then
    note_change(reports + 1, names[2 * index], names[2 * index - 1])
  end
end

window_kind.finish = function(report)
  local record, component, index, place = report.record, report.component, report.index, report.place
  if report.more == 0 then
    local limit, precision = report.limit, terms[place + 4]
    report.more, report.left = offer(
      record, component, report.want, window_room(report), limit, reserve(limit, record.window), precision, terms[place + 8]
    )
    record.beyond = record.pressed > 0 or record.sum + record.previous_sum > precision
  end
  save_window(KEYS[index], record, terms[place + 1], packed_component(record, component))
  if terms[place + 6] > 0 then
    publish(record, index, terms[place + 6])
  end
  out[first_answer + index] = bytes_of[record.sequence] .. bytes_of[component.n] .. bytes_of[record.t] .. bytes_of[record.f]
    .. bytes_of[component.previous_n] .. bytes_of[record.previous_t] .. bytes_of[record.previous_f]
    .. bytes_of[report.more] .. bytes_of[report.left] .. bytes_of[record.reset] .. NIL
  if window_refunds then
    window_refunds(index, record, component)
  end
end
