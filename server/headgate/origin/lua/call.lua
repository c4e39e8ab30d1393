-- One call: merge all reports, then charge what fits, request by request, then what is asked ahead; then answer.

local LOOK = -1

-- What a want must be charged beyond the run's credit, of which `charged` is spoken for.
local function missing(report, cost)
  return max(0, cost - max(0, report.component.n - report.own - (report.charged or 0)))
end

-- The wants of one request, all or none.
local function charge(first, last)
  for at = first, last, 2 do
    local report = deferred[wants[at]]
    report.missing = missing(report, wants[at + 1] == LOOK and 1 or wants[at + 1])
    if report.grant < 0 or not report.fits(report, report.missing) then
      return 0
    end
  end
  for at = first, last, 2 do
    if wants[at + 1] ~= LOOK then
      local report = deferred[wants[at]]
      report.charge(report, report.missing)
      report.charged = (report.charged or 0) + wants[at + 1]
    end
  end
  return 1
end

-- As many whole requests as fit beyond the credit that is left.
local function charge_ahead(report, requests, cost)
  if report.grant < 0 then
    return
  end
  local fit, beyond = 0, requests + 1
  while beyond - fit > 1 do
    local middle = floor((fit + beyond) / 2)
    if report.fits(report, missing(report, middle * cost)) then
      fit = middle
    else
      beyond = middle
    end
  end
  report.charge(report, missing(report, fit * cost))
end

if cut_to_slices then
  cut_to_slices()
end

local at = FIRST_REPORT
for index = 1, flat[1] do
  local report = flat[at] == BUCKET and bucket_report or window_report
  at = report(index, at, flat[at + 1])
end

at = 1
while wants[at] do
  local last = at + 2 * wants[at]
  out[written] = charge(at + 1, last)
  written = written + 1
  at = last + 1
end

if ARGV[4] ~= '' then
  local ahead = parts(ARGV[4])
  for place = 1, #ahead, 3 do
    charge_ahead(deferred[ahead[place]], ahead[place + 1], ahead[place + 2])
  end
end

for index, report in pairs(deferred) do
  report.save(report.key, report.record, report.field, report.component)
  report.answer(report.at, report.record, report.component, report.grant)
  if report.publish then
    report.publish(report.record, index, report.place)
  end
end
if next(changed) then
  for index = 1, flat[1] do
    local place = changed[index]
    if place then
      note_change(flat[1] + 1, flat[place + 11], flat[place + 10])
    end
  end
end
--@check for _, report in pairs(deferred) do if report.record then check_sums(report.key, report.record) end end
if keep_offered then
  keep_offered()
end
if answer_refunds then
  answer_refunds()
end
drop_unreadable()

out[1] = now
return pack(out)
