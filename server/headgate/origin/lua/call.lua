-- One call: merge all reports, then charge what fits, request by request, then what is asked ahead; then answer.
-- (What a single request wants of a single report is charged and answered with it: state.lua.)

local CHARGED, NOT_CHARGED = bytes_of[1], bytes_of[0]

-- What a want must be charged beyond the run's credit, of which `charged` is spoken for.
local function missing(report, cost)
  local credit = report.component.n - report.own - report.charged
  if credit > 0 then
    return credit < cost and cost - credit or 0
  end
  return cost
end

-- A request with one want, of a report that no other one wants: whether it was charged.
local function charge_sole(report, cost)
  local kind, needed = report.kind, missing(report, cost == PEEK and 1 or cost)
  if report.grant < 0 or not kind.fits(report, needed) then
    return NOT_CHARGED
  end
  if cost ~= PEEK then
    kind.charge(report, needed)
  end
  return CHARGED
end

-- What became of a key that nobody knew, by terms and cost: with the next one it is all the same but the key and the call
-- number, so it is done again as it was. Where traffic has a long tail most reports are of such keys.
local firsts = {}

-- Whether a report says nothing but that somebody wants something, of a key that may be new: one cell, nothing admitted
-- in it and nothing seen, no grant, no reset, nothing that other regions are told. (What it reserved or sent means
-- nothing where nothing is known.)
local function may_be_first(at, place)
  return flat[at + 1] > 0 and flat[at + 4] == 0 and flat[at + 6] == 1 and flat[at + 8] == 0 and flat[at + 10] == 0
    and flat[at + 3] > 0 and flat[at + 5] <= 0 and (terms[place + 6] == 0 or flat[at + 2] < terms[place + 6])
    and not limit_caps and not give_back_window
end

-- A new key, as the one before: no step of the plain way is missing, each is known.
local function as_before(first, index, at, key, field)
  call('HSET', key, 'w', first.totals, field, first.head .. pack(flat[at + 3]))
  keep(key, first.needed, 0)
  out[first_answer + index] = first.answer
  out[1 + flat[at + 1]] = first.charged
  return at + 12
end

-- The report that begins at `at`; returns where the next one does.
local function take_in(index, at)
  local place, when = flat[at], flat[at + 1]
  local kind = terms[place] == BUCKET and bucket_kind or window_kind
  local key, field, limit = KEYS[index], terms[place + 1], terms[place + 2]
  if limit_caps then
    limit = min(limit, limit_caps[index] or limit)
  end
  local report, packed, seen_first
  if kind == window_kind and may_be_first(at, place) then
    packed = try('HMGET', key, 'w', field)
    if not packed.err and not packed[1] and not packed[2] then
      local cost = flat[at + 2]
      seen_first = firsts[place] or {}
      firsts[place] = seen_first
      if seen_first[cost] then
        return as_before(seen_first[cost], index, at, key, field)
      end
    end
  end
  if when == LATER then
    report = open_later(kind, key, field, place, limit)
    deferred[index] = report
  elseif kind.load(kind.passing.record, kind.passing.component, key, field, place, limit, packed) then
    report = kind.passing
  end
  if report then
    report.index, report.key, report.field, report.limit, report.charged = index, key, field, limit, 0
    kind.merge(report, index, at, place)
    if when ~= LATER then
      if when > 0 then
        out[1 + when] = charge_sole(report, flat[at + 2])
      end
      kind.finish(report)
      --@check check_sums(key, report.record)
      if seen_first then
        seen_first[flat[at + 2]] = {
          totals = report.totals, needed = report.needed, head = report.head,
          answer = out[first_answer + index], charged = out[1 + when],
        }
      end
    end
  else
    out[first_answer + index] = kind.unreadable
    if when > 0 then
      out[1 + when] = NOT_CHARGED
    end
  end
  return kind == bucket_kind and at + 12 or at + 7 + 5 * flat[at + 6]
end

-- The wants of one request, all or none: whether they were charged. Without its report one can't be.
local function charge(wants, first, last)
  for at = first, last, 2 do
    local report = deferred[wants[at]]
    if not report or report.grant < 0 then
      return NOT_CHARGED
    end
    report.missing = missing(report, wants[at + 1] == PEEK and 1 or wants[at + 1])
    if not report.kind.fits(report, report.missing) then
      return NOT_CHARGED
    end
  end
  for at = first, last, 2 do
    if wants[at + 1] ~= PEEK then
      local report = deferred[wants[at]]
      report.kind.charge(report, report.missing)
      report.charged = report.charged + wants[at + 1]
    end
  end
  return CHARGED
end

local function charge_later(wants)
  local at = 1
  while wants[at] do
    local last = at + 1 + 2 * wants[at + 1]
    out[1 + wants[at]] = charge(wants, at + 2, last)
    at = last + 1
  end
end

-- As many whole requests as fit beyond the credit that is left.
local function charge_ahead(report, count, cost)
  if not report or report.grant < 0 then
    return
  end
  local fit, beyond = 0, count + 1
  while beyond - fit > 1 do
    local middle = floor((fit + beyond) / 2)
    if report.kind.fits(report, missing(report, middle * cost)) then
      fit = middle
    else
      beyond = middle
    end
  end
  report.kind.charge(report, missing(report, fit * cost))
end

if before_reports then
  before_reports()
end

local at = FIRST_REPORT
for index = 1, reports do
  at = take_in(index, at)
end

if ARGV[2] ~= '' then
  charge_later(parts(ARGV[2]))
end
if ARGV[3] ~= '' then
  local ahead = parts(ARGV[3])
  for place = 1, #ahead, 3 do
    charge_ahead(deferred[ahead[place]], ahead[place + 1], ahead[place + 2])
  end
end
for _, report in pairs(deferred) do
  report.kind.finish(report)
end
--@check for _, report in pairs(deferred) do check_sums(report.key, report.record) end
if next(changed) then
  local names = parts(ARGV[5])
  for index = 1, reports do
    if changed[index] then
      note_change(reports + 1, names[2 * index], names[2 * index - 1])
    end
  end
end
if answer_refunds then
  answer_refunds()
end
if after_reports then
  after_reports()
end
drop_unreadable()

-- The head of an array of so many, in msgpack.
return struct.pack('>BI4', 0xdd, numbers) .. table.concat(out)
