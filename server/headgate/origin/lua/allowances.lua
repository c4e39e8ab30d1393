-- Allowances: units of a limit key that are set aside, each for one run to spend without asking (allowances.py).

-- As in allowances.py, where each has its reason.
local NOW_AND_THEN = -1  -- in the place of what is wanted (protocol.py)
local LIVED_MS, EVERYBODY, NEAR, SHARP, PRESSED = 10000, 64, 8, 20, 2

--@check local function check_sums(key, record)
--@check   local held = { [record.generation] = 0, [record.generation - 1] = 0 }
--@check   local fields = call('HGETALL', key)
--@check   for i = 1, #fields, 2 do
--@check     local kind, values = string.sub(fields[i], 1, 1), { parts(fields[i + 1]) }
--@check     local at = (kind == 'c' and 4) or (kind == 'd' and 2) or 0
--@check     local generation = values[at + 1]
--@check     if at > 0 and held[generation] then held[generation] = held[generation] + values[at] end
--@check   end
--@check   assert(held[record.generation] == record.sum, 'allowances: the sum is not what the runs hold')
--@check   assert(held[record.generation - 1] == record.previous_sum, 'allowances: the previous sum is wrong')
--@check end

-- Take in what a run has left of its allowance. False for a call that was overtaken by a later one.
local function keep_allowance(record, component, number, rest)
  if number <= component.number then
    return false
  end
  component.number = number
  local generation, sum, previous_sum = record.generation, record.sum, record.previous_sum
  if generation_now > generation then
    local follows = generation_now == generation + 1
    previous_sum = follows and sum or 0
    record.pressed = follows and record.pressed > 0 and record.pressed - 1 or 0
    sum, generation = 0, generation_now
  end
  if component.generation == generation then
    sum = sum - component.held
  elseif component.generation == generation - 1 then
    previous_sum = previous_sum - component.held
  end
  component.held, component.generation = rest, generation
  record.generation, record.sum, record.previous_sum = generation, sum + rest, previous_sum
  return true
end

-- Work out what all reports of these terms have in common: what of P is given at the limit too, and what of the room
-- stays free, about the noise while an allowance lives.
local function prepare(terms, limit, span)
  terms.most, terms.given = limit, max(0, terms.precision - floor(limit / SHARP))
  terms.kept = floor(math.sqrt(floor(2 * limit * (span < LIVED_MS and span or LIVED_MS) / span)))
end

-- Set more aside for a report's run where so much room is left, and note how much more, and how much is left then.
local function offer(report, room)
  local record, component, terms, want = report.record, report.component, report.terms, report.want
  local precision, rest, held = terms.precision, component.held, record.sum + record.previous_sum
  local beyond = terms.given
  if room > 2 * beyond + 1 and precision > beyond then
    beyond = floor(room / 2)
    if beyond > precision then
      beyond = precision
    end
  end
  local far, more = room - terms.kept + beyond - held + rest, 0
  if far >= NEAR then
    report.left = PLENTY
    local pressed = record.pressed > 0
    if want > 0 then
      more = want * 2 <= far and want or min(want, ceil(far / 2))
    elseif want == NOW_AND_THEN and not pressed then
      more = 1
    end
    if want ~= 0 and not pressed and far >= EVERYBODY * (more + 1) then
      more = floor(far / EVERYBODY)
    end
    more = more - rest
  else
    local free = held > precision and room + precision - held or room
    more = want - rest < free and want - rest or free
    report.left = max(0, more > 0 and free - more or free)
  end
  if terms.within then
    more = min(more, precision - held)
    record.pressed = 0
  end
  -- A later report of the call may have emptied the record: then nothing is known of this run.
  if more > 0 and component.number > 0 then
    --@check assert(held + more <= room + precision, 'allowances: more than there is')
    component.held, record.sum, report.more = rest + more, record.sum + more, more
    held = held + more
  end
  record.beyond = held > precision or record.pressed > 0
end
