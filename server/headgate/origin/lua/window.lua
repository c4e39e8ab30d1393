-- One report of a limit key under a sliding or fixed window (window_record.py).

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

window_kind.load = function(key, terms, _, record)
  local field, sequence = terms.field, terms.sequence
  local packed = try('HMGET', key, 'w', field)
  if packed.err then
    return not_a_record(key, packed.err)
  end
  local totals, mine = packed[1], packed[2]
  if not record then
    if list_number and not totals and not may_begin(key) then
      return ELSEWHERE
    end
    local format
    record, format = load_window(key, totals, terms.window, sequence)
    if not record then
      return format == SEALED_FORMAT and SEALED or nil
    elseif totals then
      if record.sequence ~= sequence or record.generation > latest_generation then
        mine = seldom.come_to(record, sequence, key, field) and mine
      end
      if names then
        record.before_t, record.before_previous_t = record.t, record.previous_t
      end
    end
  end
  if not mine then
    return record, { n = 0, previous_n = 0, held = 0, generation = 0, number = 0 }
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
  seldom.empty_window(record, record.sequence)
  local other = report
  while other do
    local component = other.component
    component.n, component.previous_n, component.back = 0, 0, nil
    component.held, component.generation, component.number = 0, 0, 0
    other = other.earlier
  end
  record.before_t = -1  -- told to other regions, whatever counts from here on
end

-- A cell's t and l and a run's n in it, now that its n is known to be `total`, and t to have been `seen`. Of what n gains,
-- what the run had sent before may be what was lost, and comes back; the rest is new.
local function merged(t, l, n, total, seen, sent)
  if seen > t then
    t, l = seen, l + seen - t
  end
  if total > n then
    local explained = l > 0 and min(l, max(0, min(total, sent) - n)) or 0
    t, l, n = t + total - n - explained, l - explained, total
  end
  return t, l, n
end

-- Merge a report's cells. Those of the shard's future come again when it is there; older ones no longer matter.
window_kind.merge = function(report, at)
  local said, record, component, terms = flat, report.record, report.component, report.terms
  local reset, known = said[at + 4], record.reset
  if reset > known then
    reset_window(report, reset)
  elseif reset >= 0 and reset < known then
    return  -- of before a reset: it counts nothing, and gets nothing
  end
  local current, rest = record.sequence, said[at + 2]
  for cell = at + 6, at + 1 + 5 * said[at + 5], 5 do
    local sequence, total, seen, sent = said[cell], said[cell + 1], said[cell + 3], said[cell + 4]
    if sequence == current then
      record.t, record.l, component.n = merged(record.t, record.l, component.n, total, seen, sent)
      report.own = report.own + total + said[cell + 2]
      if sent > report.sent then
        report.sent = sent
      end
    elseif sequence == current - 1 then
      record.previous_t, record.previous_l, component.previous_n =
        merged(record.previous_t, record.previous_l, component.previous_n, total, seen, sent)
    elseif sequence > current then
      rest = rest + total  -- spent in a window that is yet to come here: set aside until then
    end
  end
  if refund_window then
    refund_window(report.index, record, component)
  end
  if keep_allowance(record, component, said[at + 1], terms.leaving and 0 or rest) then
    report.more, report.want = 0, terms.leaving and 0 or said[at + 3]
  end
end

window_kind.room = function(report)
  local record, terms = report.record, report.terms
  local refunds = record.refunds
  local used = record.t + record.f
  if refunds then
    used = used - refunds.r - refunds.fr
  end
  local previous = record.previous_t + record.previous_f
  if previous > 0 and not terms.fixed then
    -- Of a window that the shard's clock has yet to reach, all is left.
    local window = record.window
    local left = record.sequence == terms.sequence and terms.left or window
    if refunds then
      previous = previous - refunds.previous_r - refunds.previous_fr
    end
    local weight = previous * left
    used = used + (weight < EXACT and floor(weight / window) or multiply_divide(previous, left, 0, window))
  end
  return report.limit - used
end

window_kind.charge = function(report, missing)
  local record, component = report.record, report.component
  local n = component.n
  record.t, record.l, component.n = merged(record.t, record.l, n, n + missing, 0, report.sent)
end

-- Have other regions told, if the key's totals have changed, and are at the threshold or count there too.
local function publish(record, index, publish_at)
  local before_t, before_previous_t = record.before_t or 0, record.before_previous_t or 0
  if record.t == before_t and record.previous_t == before_previous_t and not record.gave_back then
    return
  end
  if max(record.t, record.previous_t) >= publish_at or record.f + record.previous_f + record.ahead_f > 0
    or record.reset > 0 then
    note_change(reports + 1, names[2 * index], names[2 * index - 1])
  end
end

window_kind.finish = function(report)
  local bytes, record, component, index, terms = bytes_of, report.record, report.component, report.index, report.terms
  if report.more == 0 then
    if terms.most ~= report.limit then
      prepare(terms, report.limit, record.window)
    end
    offer(report, window_kind.room(report))
  end
  local sequence, n, previous_n = bytes[record.sequence], bytes[component.n], bytes[component.previous_n]
  local mine = sequence .. n .. previous_n .. bytes[component.held] .. bytes[component.generation] .. pack(component.number)
  local back = component.back
  if back and back.r + back.previous_r + back.demanded + back.previous_demanded > 0 then
    mine = mine .. pack(back.r, back.previous_r, back.demanded, back.previous_demanded)
  end
  save_window(KEYS[index], record, terms.field, mine)
  if terms.publish_at > 0 then
    publish(record, index, terms.publish_at)
  end
  answers[index] = sequence .. n .. bytes[record.t] .. bytes[record.f] .. previous_n .. bytes[record.previous_t]
    .. bytes[record.previous_f] .. bytes[report.more] .. bytes[report.left] .. bytes[record.reset]
    .. NIL
  if window_refunds then
    window_refunds(index, record, component)
  end
end
