-- One call (state.lua): merge all reports, charge what fits, request by request, then set aside what runs want; answer.

local CHARGED, NOT_CHARGED = bytes_of[1], bytes_of[0]
-- By report what was opened for it, or false; by key the last one of these, whose `earlier` is the one before.
local opened, last_of_key = {}, {}
-- By the place of a cost in its request, what of it the run's credit does not cover: known before any is charged.
local owed = {}

-- What a cost must be charged beyond the run's credit, of which `own` is spoken for. A bucket has none: what was charged
-- and not spent drains.
local function missing(report, cost)
  local credit = report.burst and 0 or report.component.n - report.own
  if credit > 0 then
    return credit < cost and cost - credit or 0
  end
  return cost
end

if before_reports then
  before_reports()
end
-- Read and merge each report.
local at = FIRST_REPORT
for index = 1, reports do
  local terms, key = terms_at[flat[at]], KEYS[index]
  local kind, limit, earlier = terms.kind, terms.limit, last_of_key[key]
  if limit_caps then
    limit = min(limit, limit_caps[index] or limit)
  end
  local same_run, record, component = earlier, nil, nil
  while same_run and same_run.terms.field ~= terms.field do
    same_run = same_run.earlier
  end
  if same_run then
    record, component = same_run.record, same_run.component
  else
    record, component = kind.load(key, terms, limit, earlier and earlier.record)
  end
  if component then
    local report = {
      index = index, terms = terms, limit = limit, record = record, component = component, own = 0, sent = 0,
      more = OVERTAKEN, left = 0,
    }
    opened[index], last_of_key[key] = report, report
    if earlier then
      report.earlier = earlier
    end
    kind.merge(report, at)
  else
    opened[index] = false
    answers[index] = kind[record] or kind.unreadable
  end
  at = kind == bucket_kind and at + 11 or at + 6 + 5 * flat[at + 5]
end

-- Charge the costs of each request, all or none. Without its report one can't be.
at = 0
for number = 1, requests do
  local first, last, fits = at + 2, at + 1 + 2 * wanted[at + 1], true
  for place = first, last, 2 do
    local report, cost = opened[wanted[place]], wanted[place + 1]
    if not report or report.more < 0 then
      fits = false
      break
    end
    local terms, record, needed = report.terms, report.record, missing(report, cost == PEEK and 1 or cost)
    local room, hidden = terms.kind.room(report), terms.precision - record.sum - record.previous_sum
    if needed > room or needed > room + hidden then
      if needed <= room then
        record.pressed = PRESSED  -- allowances alone are in the way
      end
      fits = false
      break
    end
    owed[place - at] = needed
  end
  if fits then
    for place = first, last, 2 do
      local report, cost = opened[wanted[place]], wanted[place + 1]
      if cost ~= PEEK then
        report.terms.kind.charge(report, owed[place - at])
        report.own = report.own + cost
      end
    end
  end
  charged[number] = fits and CHARGED or NOT_CHARGED
  at = last
end

for index = 1, reports do
  local report = opened[index]
  if report then
    report.terms.kind.finish(report)
  end
end
--@check for index = 1, reports do if opened[index] then check_sums(KEYS[index], opened[index].record) end end
if answer_refunds then
  answer_refunds()
end
if after_reports then
  after_reports()
end
for index = 1, #unreadable_keys do
  call('DEL', unreadable_keys[index])
end

-- The head of an array of so many, in msgpack.
return struct.pack('>BI4', 0xdd, numbers) .. bytes_of[now] .. table.concat(charged) .. table.concat(answers)
  .. table.concat(added)
