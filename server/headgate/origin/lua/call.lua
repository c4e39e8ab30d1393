-- One call (state.lua): merge all reports, charge what fits, request by request, then set aside what runs want; answer.

local CHARGED, NOT_CHARGED = bytes_of[1], bytes_of[0]
local opened = {}
-- By the place of a cost in `wanted`, what of it the run's credit does not cover: known before any of a request is charged.
local owed = {}

-- Read and merge the report that begins at `at`.
local function open(kind, index, at)
  local place, key = flat[at], KEYS[index]
  local field, limit, earlier = terms[place + 1], terms[place + 2], last_of_key[key]
  if limit_caps then
    limit = min(limit, limit_caps[index] or limit)
  end
  local record, component
  if earlier then
    record, component = load_shared(kind, key, field, place, limit, earlier)
  else
    record, component = kind.load(key, field, place, limit)
  end
  if not component then
    opened[index] = false
    out[first_answer + index] = kind.unreadable
    return
  end
  local report = {
    index = index, place = place, limit = limit, record = record, component = component, own = 0, sent = 0,
    more = OVERTAKEN, left = 0,
  }
  opened[index], last_of_key[key] = report, report
  if earlier then
    report.earlier = earlier
  end
  kind.merge(report, at, place)
end

-- What a cost must be charged beyond the run's credit, of which `own` is spoken for. A bucket has none: what was charged
-- and not spent drains.
local function missing(report, cost)
  local credit = report.burst and 0 or report.component.n - report.own
  if credit > 0 then
    return credit < cost and cost - credit or 0
  end
  return cost
end

-- The costs of one request, all or none: whether they were charged. Without its report one can't be.
local function charge(first, last)
  for at = first, last, 2 do
    local report, cost = opened[wanted[at]], wanted[at + 1]
    if not report or report.more < 0 then
      return NOT_CHARGED
    end
    owed[at] = missing(report, cost == PEEK and 1 or cost)
    if not kinds[terms[report.place]].fits(report, owed[at]) then
      return NOT_CHARGED
    end
  end
  for at = first, last, 2 do
    local report, cost = opened[wanted[at]], wanted[at + 1]
    if cost ~= PEEK then
      kinds[terms[report.place]].charge(report, owed[at])
      report.own = report.own + cost
    end
  end
  return CHARGED
end

if before_reports then
  before_reports()
end
local at = FIRST_REPORT
for index = 1, reports do
  local kind = kinds[terms[flat[at]]]
  open(kind, index, at)
  at = kind == bucket_kind and at + 11 or at + 6 + 5 * flat[at + 5]
end
at = 1
for number = 1, requests do
  local last = at + 2 * wanted[at]
  out[1 + number] = charge(at + 1, last)
  at = last + 1
end
for index = 1, reports do
  local report = opened[index]
  if report then
    kinds[terms[report.place]].finish(report)
  end
end
--@check for index = 1, reports do if opened[index] then check_sums(KEYS[index], opened[index].record) end end
if answer_refunds then
  answer_refunds()
end
if after_reports then
  after_reports()
end
drop_unreadable()

-- The head of an array of so many, in msgpack.
return struct.pack('>BI4', 0xdd, numbers) .. table.concat(out)
