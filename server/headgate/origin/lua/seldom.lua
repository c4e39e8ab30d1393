-- What the scripts share and seldom need: for records of another time, other fields, a server that refuses.
--
-- All of it is made when the first of it is called: making functions is what a small call spends most of its time with.

local seldom = setmetatable({}, { __index = function(made, name)
  -- An error of `try` is one of a single record, unless the user may not read any: that is raised, with the command's name.
  local function raise_if_forbidden(text)
    if string.find(text, "can't run this command", 1, true) or string.find(text, 'ACL failure', 1, true)
      or string.find(text, 'NOPERM', 1, true) then
      error("-NOPERM this user has no permissions to run the 'hmget' command", 0)
    end
  end

  local looked_through = 0

  -- Whether this key's fields may be looked through for what is gone.
  local function may_forget(key)
    local fields = call('HLEN', key)
    if fields <= SMALL_HASH or (looked_through > 0 and looked_through + fields > LOOK_THROUGH) then
      return false
    end
    looked_through = looked_through + fields
    return true
  end

  -- The numbers of a field that this key's other runs or regions wrote; nothing if they make no sense.
  local function field_numbers(packed)
    local ok, sequence, current, previous, fourth, generation = pcall(parts, packed)
    if ok and type(sequence) == 'number' and type(current) == 'number' and type(previous) == 'number' then
      return sequence, current, previous, type(fourth) == 'number' and fourth or 0, generation
    end
  end

  -- Three numbers of the current, previous and next cell of window `known`, for those of window `sequence`.
  local function rolled(known, sequence, current, previous, ahead)
    if known == sequence then
      return current, previous, ahead
    elseif known == sequence - 1 then
      return ahead, current, 0
    end
    return 0, known == sequence - 2 and ahead or 0, 0
  end

  -- Another region's current, previous and next count in the record's cells, from its field.
  local function roll_foreign(packed, sequence)
    local known, current, previous, ahead
    if packed then
      known, current, previous, ahead = field_numbers(packed)
    end
    return rolled(known, sequence, current, previous, ahead)
  end

  -- Whether a run's field has refunds in either of the record's cells.
  local function has_refunds(record, packed)
    local ok, sequence, _, _, _, _, _, r, previous_r, demanded, previous_demanded = pcall(parts, packed)
    if not ok or not previous_demanded then
      return false
    end
    return (sequence == record.sequence and r + previous_r + demanded + previous_demanded > 0)
      or (sequence == record.sequence - 1 and r + demanded > 0)
  end

  -- Runs and regions with nothing in either cell; runs only when they have not called for two
  -- generations. `mine` is the field that is about to be written.
  local function forget_the_gone(record, key, mine)
    if not may_forget(key) then
      return
    end
    local fields = call('HGETALL', key)
    for i = 1, #fields, 2 do
      local field = fields[i]
      local kind = string.sub(field, 1, 1)
      if field ~= mine and (kind == 'c' or kind == 'f') then
        local sequence, current, previous, ahead, generation = field_numbers(fields[i + 1])
        local counts = (sequence == record.sequence and (current > 0 or previous > 0))
          or (sequence == record.sequence - 1 and (current > 0 or (kind == 'f' and ahead > 0)))
        local idle = type(generation) ~= 'number' or generation < record.generation - 1
        if not counts and (kind == 'f' or idle) and not (kind == 'c' and has_refunds(record, fields[i + 1])) then
          call('HDEL', key, field)
        end
      end
    end
  end

  local function forget_fields(key, kind)
    local fields = call('HKEYS', key)
    for i = 1, #fields do
      if string.sub(fields[i], 1, 1) == kind then
        call('HDEL', key, fields[i])
      end
    end
  end

  local function no_allowances(record)
    record.generation, record.sum, record.previous_sum, record.pressed = 0, 0, 0, 0
    record.beyond = false
  end

  local function empty_window(record, sequence)
    record.sequence, record.told = sequence, 0
    record.t, record.l, record.f = 0, 0, 0
    record.previous_t, record.previous_l, record.previous_f = 0, 0, 0
    record.ahead_f = 0
    record.refunds = nil
    no_allowances(record)
  end

  -- The refunds of a record, to be changed: there are some from now on.
  local function refunds_of(record)
    local refunds = record.refunds
    if not refunds then
      refunds = { r = 0, previous_r = 0, fr = 0, previous_fr = 0, ahead_fr = 0 }
      record.refunds = refunds
    end
    return refunds
  end

  -- Come to the shard's time, which is in window `sequence`. Cells roll over lazily; a record one window ahead waits, one
  -- that is further ahead was written by a wrong clock and begins anew. False: the key's components are gone.
  local function come_to(record, sequence, key, mine)
    local known, refunds = record.sequence, record.refunds
    if sequence > known then
      local follows, skips_one = sequence == known + 1, sequence == known + 2
      record.previous_t, record.previous_l = follows and record.t or 0, follows and record.l or 0
      record.previous_f = follows and record.f or skips_one and record.ahead_f or 0
      record.t, record.l, record.f, record.ahead_f = 0, 0, follows and record.ahead_f or 0, 0
      if refunds then
        refunds.previous_r = follows and refunds.r or 0
        refunds.previous_fr = follows and refunds.fr or skips_one and refunds.ahead_fr or 0
        refunds.r, refunds.fr, refunds.ahead_fr = 0, follows and refunds.ahead_fr or 0, 0
      end
      record.sequence = sequence
      if known > 0 then
        forget_the_gone(record, key, mine)
      end
    elseif sequence < known - 1 then
      call('DEL', key)
      empty_window(record, sequence)
      return false
    elseif record.generation > latest_generation then
      -- The counts stay; who they were of is gone with those who lie ahead.
      record.l, record.previous_l = record.t, record.previous_t
      if refunds then
        refunds.r, refunds.previous_r = 0, 0
      end
      no_allowances(record)
      forget_fields(key, 'c')
      return false
    end
    return true
  end

  made.raise_if_forbidden, made.may_forget, made.field_numbers = raise_if_forbidden, may_forget, field_numbers
  made.rolled, made.roll_foreign, made.forget_fields, made.no_allowances = rolled, roll_foreign, forget_fields, no_allowances
  made.empty_window, made.refunds_of, made.come_to = empty_window, refunds_of, come_to
  return rawget(made, name)
end })
