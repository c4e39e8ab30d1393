-- One report of a limit key under a sliding or fixed window (window_record.py).

local function read_component(component, packed)
  component.back = nil
  if not packed then
    component.sequence, component.n, component.previous_n = 0, 0, 0
    component.held, component.generation, component.number = 0, 0, 0
    return FORMAT
  end
  local sequence, n, previous_n, held, generation, number, r, previous_r, demanded, previous_demanded = parts(packed)
  if not are_counts(sequence, n, previous_n, held, generation, number) then
    return
  end
  if r then
    if not are_counts(r, previous_r, demanded, previous_demanded) then
      return
    end
    component.back = { r = r, previous_r = previous_r, demanded = demanded, previous_demanded = previous_demanded }
  end
  component.sequence, component.n, component.previous_n = sequence, n, previous_n
  component.held, component.generation, component.number = held, generation, number
  return FORMAT
end

local function roll_component(component, sequence)
  local known = component.sequence
  if known ~= sequence then
    component.n, component.previous_n = 0, known == sequence - 1 and component.n or 0
    local back = component.back
    if back then
      local follows = known == sequence - 1
      back.previous_r, back.previous_demanded = follows and back.r or 0, follows and back.demanded or 0
      back.r, back.demanded = 0, 0
    end
  end
end

-- Whether the key's record could be read.
local function load_report(record, component, key, field, window)
  local packed = try('HMGET', key, 'w', field)
  if packed.err then
    raise_if_forbidden(packed.err)
    unreadable_keys[#unreadable_keys + 1] = key
    return false
  end
  record.window = window
  if not readable(key, read_window, record, packed[1]) then
    return false
  end
  local known = come_to(record, key, field)
  if not readable(key, read_component, component, known and packed[2]) then
    return false
  end
  roll_component(component, record.sequence)
  record.before_t, record.before_previous_t = record.t, record.previous_t
  return true
end

-- Whether a report counts here. One of a later reset than is known empties the record first.
local function window_belongs(record, component, key, reset)
  if reset > record.reset then
    record.reset = reset
    call('DEL', key)
    empty_window(record, record.sequence)
    read_component(component)
    for _, other in pairs(record.components or {}) do
      read_component(other)
    end
    record.before_t = -1  -- told to other regions, whatever counts from here on
  end
  return reset < 0 or reset == record.reset
end

-- How much of what a component gains from n to m was lost and comes back, and how much is
-- new: what it had sent before may be what was lost.
local function gain(lost, n, m, sent)
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
-- there; older ones no longer matter. Returns the run's own part and its `sent` of the current.
local function merge_cells(record, component, at, cells)
  local own, own_sent = 0, 0
  local current = record.sequence
  for cell = at, at + 5 * (cells - 1), 5 do
    local sequence = flat[cell]
    if sequence == current then
      local total, sent = flat[cell + 1], flat[cell + 4]
      merge_current(record, component, total, flat[cell + 3], sent)
      own = own + total + flat[cell + 2]
      own_sent = max(own_sent, sent)
    elseif sequence == current - 1 then
      merge_previous(record, component, flat[cell + 1], flat[cell + 3], flat[cell + 4])
    end
  end
  return own, own_sent
end

local function save_component(key, record, field, component)
  local back, value = component.back, nil
  if back and back.r + back.previous_r + back.demanded + back.previous_demanded > 0 then
    value = pack(
      record.sequence, component.n, component.previous_n, component.held, component.generation, component.number,
      back.r, back.previous_r, back.demanded, back.previous_demanded
    )
  else
    value = pack(
      record.sequence, component.n, component.previous_n, component.held, component.generation, component.number
    )
  end
  save_window(key, record, field, value)
end

-- Remember where the report stands, if other regions are to be told: its key's totals have changed, and are at
-- the threshold or count there too.
local function publish(record, index, at)
  local publish_at = flat[at + 9]
  if publish_at == 0 or (
    record.t == record.before_t and record.previous_t == record.before_previous_t and not record.gave_back
  ) then
    return
  end
  if max(record.t, record.previous_t) >= publish_at or record.f + record.previous_f + record.ahead_f > 0
    or record.reset > 0 then
    changed[index] = at
  end
end

local function window_answer(at, record, component, grant)
  out[at], out[at + 1], out[at + 2], out[at + 3] = record.sequence, component.n, record.t, record.f
  out[at + 4], out[at + 5], out[at + 6] = component.previous_n, record.previous_t, record.previous_f
  out[at + 7], out[at + 8] = grant, record.reset
  if window_refunds then
    window_refunds(at, record, component)
  end
end

local function window_fits(report, missing)
  local record = report.record
  local refunds = record.refunds
  local effective = record.t + record.f + missing
  if refunds then
    effective = effective - refunds.r - refunds.fr
  end
  if report.sliding then
    local window = record.window
    local left = window - time_of(record) % window
    local previous = record.previous_t + record.previous_f
    if refunds then
      previous = previous - refunds.previous_r - refunds.previous_fr
    end
    effective = effective + multiply_divide(previous, left, 0, window)
  end
  return effective <= report.limit
end

local function window_charge(report, missing)
  local record, component = report.record, report.component
  local n = component.n
  local explained, gained = gain(record.l, n, n + missing, report.sent)
  record.l, record.t = record.l - explained, record.t + gained
  component.n = n + missing
end

-- The report that begins at `at`; returns where the next one does.
local function window_report(index, at, later)
  local key, field = KEYS[index], flat[at + 2]
  local record, component = open(key, field, later, load_report, flat[at + 6])
  if not record then
    report_unreadable(index, later, 9)
    written = written + 9
    return at + 14 + 5 * flat[at + 13]
  end
  if answers_at then
    answers_at[index] = written
  end
  local own, sent, grant = 0, 0, NO_GRANT
  if window_belongs(record, component, key, flat[at + 12]) then
    own, sent = merge_cells(record, component, at + 14, flat[at + 13])
    if give_back_window then
      give_back_window(index, record, component)
    end
    grant = renew(record, component, flat[at + 3], flat[at + 4], flat[at + 7], flat[at + 8])
  end
  if later == 0 then
    save_component(key, record, field, component)
    publish(record, index, at)
    window_answer(written, record, component, grant)
    --@check check_sums(key, record)
  else
    deferred[index] = {
      record = record, component = component, grant = grant, own = own, sent = sent,
      limit = flat[at + 5], sliding = flat[at] ~= FIXED, at = written, key = key, field = field, place = at,
      fits = window_fits, charge = window_charge, save = save_component, answer = window_answer, publish = publish,
    }
  end
  written = written + 9
  return at + 14 + 5 * flat[at + 13]
end
