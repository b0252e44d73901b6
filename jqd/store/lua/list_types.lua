-- Returns the numbers of jobs of each jobtype by state, for a part of the jobtypes.
-- ARGV     now_ms, part ("0" first), about how many jobtypes, "1": with dates
-- Returns  the next part ("0": that was all); flat: jobtype, its numbers (STATES, then TOTALS), since when (ms) its
--          next job could have begun, or nothing. A jobtype may come twice
-- Errors   none
-- Cost     O(part · log waiting), and the bytes of the rows of next jobs, BYTES_MAX at most; O(part) without dates
register('list_types', {'no-writes'}, function()
  local SOON_MS, MICROS = 1000, 1000
  local BYTES_MAX = 2 * 1024 * 1024  -- of rows in one call: a millisecond or two
  local now_ms = clock(ARGV[1])
  local place, limit, is_dated = ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'

  -- Every jobtype that has jobs has this field; the others are read together, so that they are of one moment.
  local MARK, NUMBERS = Counts.TOTALS[1] .. ':', #Counts.STATES + #Counts.TOTALS

  -- Returns a row, unless it has more bytes than are left for this call.
  local bytes_left = BYTES_MAX
  local function row_within(key, id)
    local bytes = redis.call('HSTRLEN', key, id)
    if bytes > bytes_left then
      return nil
    end
    bytes_left = bytes_left - bytes
    return redis.call('HGET', key, id) or nil
  end

  -- Returns until when its last attempt had it wait. Lua can read only the first values of an outcome.
  local function retried_ms(id)
    local DELAY, FINISHED = 8, 10
    local row = row_within(K.tries, id)
    if not row or #row <= 8 or not Move.has_begun(row) then
      return 0
    end
    local packed = row:sub(9, 8 + struct.unpack('>I4', row, 5))
    local values = Outcomes.values(packed, FINISHED)
    return (tonumber(values[DELAY]) or 0) + (tonumber(values[FINISHED]) or 0)
  end

  -- Nobody knows when the last parent of a job ended: then, or if the row is not read, the date of its push counts.
  local function due_of(jobtype)
    local ID_LENGTH = 26
    local first = Queues.first_between(jobtype, '-inf', '+inf') or call.has_keyed and Index.best_keyed(jobtype) or ''
    local id = first:match('^[^:]*')  -- a keyed job's row has its queue behind
    if #id ~= ID_LENGTH then
      return ''
    end
    local due_ms = Order.pushed_ms(id)
    if now_ms - due_ms > SOON_MS then
      local _, _, date_ms = Move.header(row_within(K.jobs, id) or '')
      local anew_us = (redis.call('HGET', K.generation, id) or ''):match(':(%d+)')
      due_ms = math.max(due_ms, date_ms or 0, retried_ms(id), math.floor((tonumber(anew_us or nil) or 0) / MICROS))
    end
    return string.format('%.0f', math.min(due_ms, now_ms))
  end

  -- A jobtype has between two and all of the fields, so answers are counted, in small steps.
  local found, rows = {}, nil
  for _ = 1, NUMBERS do
    place, rows = unpack(redis.call('HSCAN', K.counts, place, 'MATCH', MARK .. '*', 'COUNT', limit))
    for at = 1, #rows, 2 do
      local jobtype = rows[at]:sub(#MARK + 1)
      local numbers = Counts.read(jobtype)
      local may_wait = is_dated and (numbers[1] or numbers[4])  -- waiting, retrying
      found[#found + 1], found[#found + 2], found[#found + 3] = jobtype, numbers, may_wait and due_of(jobtype) or ''
    end
    if place == '0' or #found > 3 * limit / 2 then  -- one more step may bring half of them
      break
    end
  end
  return {place, found}
end)
