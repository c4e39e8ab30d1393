-- One call: merge all reports, then charge what fits, request by request, then answer.

-- What a want must be charged beyond the run's credit, of which `charged` is spoken for.
local function missing(report, cost)
  return max(0, cost - max(0, report.component.n - report.own - (report.charged or 0)))
end

-- The wants of one request, all or none.
local function charge(first, last)
  for at = first, last, 2 do
    local report = deferred[wants[at]]
    report.missing = missing(report, wants[at + 1])
    if report.grant < 0 or not report.fits(report, report.missing) then
      return 0
    end
  end
  for at = first, last, 2 do
    local report = deferred[wants[at]]
    report.charge(report, report.missing)
    report.charged = (report.charged or 0) + wants[at + 1]
  end
  return 1
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
drop_unreadable()

out[1] = now
return pack(out)
