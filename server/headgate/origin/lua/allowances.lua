-- Allowances: units of a limit key that are set aside, each for one run to spend without asking (allowances.py).

-- As in allowances.py, where each has its reason.
local NOW_AND_THEN = -1  -- in the place of what is wanted (protocol.py)
local LIVED_MS, EVERYBODY, SLOW, SHARP, PRESSED = 10000, 64, 4, 20, 2

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

-- How much of the room stays free: about the noise of what comes while an allowance lives.
local function reserve(limit, window)
  return floor(math.sqrt(floor(2 * limit * (window < LIVED_MS and window or LIVED_MS) / window)))
end

-- Take in what a run has left of its allowance. False for a call that was overtaken by a later one.
local function keep_allowance(record, component, number, rest)
  if number <= component.number then
    return false
  end
  component.number = number
  if generation_now > record.generation then
    local follows = generation_now == record.generation + 1
    record.previous_sum = follows and record.sum or 0
    record.pressed = follows and record.pressed > 0 and record.pressed - 1 or 0
    record.sum = 0
    record.generation = generation_now
  end
  local generation = record.generation
  if component.generation == generation then
    record.sum = record.sum - component.held
  elseif component.generation == generation - 1 then
    record.previous_sum = record.previous_sum - component.held
  end
  component.held, component.generation = rest, generation
  record.sum = record.sum + rest
  return true
end

-- How much of the room may be charged: P hides so much of what is set aside.
local function free_of(record, room, precision)
  local hidden = precision - record.sum - record.previous_sum
  return hidden < 0 and room + hidden or room
end

-- Whether a cost fits beside all allowances; a key of which those alone are in the way is pressed.
local function fits_beside(record, missing, room, precision)
  if missing <= free_of(record, room, precision) then
    return true
  end
  if missing <= room then
    record.pressed = PRESSED
  end
  return false
end

-- What a run should hold where so much is free.
local function goal(record, want, far)
  local pressed, should = record.pressed > 0, want
  if want == 0 or (want == NOW_AND_THEN and pressed) then
    return 0
  end
  if want == NOW_AND_THEN then
    should = far >= SLOW and 1 or 0
  elseif want * 2 > far then
    should = min(want, ceil(far / 2))
  end
  return pressed and should or max(should, floor(far / EVERYBODY))
end

-- Set more aside for a report's run, and note how much more, and how much is left.
local function offer(report, room, limit, kept)
  local record, component, want, precision = report.record, report.component, report.want, report.terms.precision
  local rest, held = component.held, record.sum + record.previous_sum
  local beyond = max(min(precision, floor(max(0, room) / 2)), precision - floor(limit / SHARP))
  local far = room - kept + beyond - held + rest
  local more, left
  if far > 0 then
    more, left = goal(record, want, far) - rest, PLENTY
  else
    local free = free_of(record, room, precision)
    more = min(want - rest, free)
    left = max(0, free - max(0, more))
  end
  if report.terms.within then
    more = min(more, precision - held)
  end
  report.left = left
  -- A later report of the call may have emptied the record: then nothing is known of this run.
  if more > 0 and component.number > 0 then
    --@check assert(held + more <= room + precision, 'allowances: more than there is')
    component.held, record.sum, report.more = rest + more, record.sum + more, more
    held = held + more
  end
  record.beyond = record.pressed > 0 or held > precision
end
