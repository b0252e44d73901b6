-- Which jobtypes have ready jobs that the caller wants, and the next of these jobs of each, where jobs age (shared/ageing.lua).
-- ARGV     now_ms, limit, period_ms, then per wish as get_waiting_jobtypes has them
-- Returns  flat: jobtype, priority and id of its first job that is wanted, number waiting, 1 when that job may only run alone, its rank; in no order.
--          Of "any" the best `limit`
-- Errors   JQD_ARGUMENT; none after the first write
-- Cost     O(priorities in use + limit) for "any", O(priorities in use) for each jobtype named, PRIORITIES at most
register('get_aged_jobtypes', {'allow-oom'}, function()
  local limit, period_ms = number(ARGV[2], 'limit'), number(ARGV[3], 'period_ms')
  local FIRST = 4
  local ROWS = 1024  -- of an index, for each wish, and one more for each jobtype that is not meant
  local QUEUES = 64  -- of a jobtype, where first jobs had dates

  Ageing.begin(period_ms)
  local jobtypes, best = {}, {}

  local function note(jobtype, rank, id, priority)
    local known = best[jobtype]
    if not known then
      jobtypes[#jobtypes + 1] = jobtype
    end
    if not known or Order.precedes(rank, id, known.rank, known.id) then
      best[jobtype] = {rank = rank, id = id, priority = priority}
    end
  end

  -- Notes the queue of that row, if there is a job. Whether there is, and its rank.
  local function note_row(row, priority)
    local id, queue = row:match('^([^:]*):(.*)$')
    if not id then
      return false
    end
    local first = Heads.is_loose(queue, id) and id or Queues.head_of(queue, priority)
    local rank = first and Ageing.of_level(queue, priority, first)
    if first then
      note(Queues.type_of(queue), rank, first, priority)
    end
    return first ~= nil, rank
  end

  -- Notes the best of a jobtype's keyed queues: behind one whose first job had a date a better one may stand.
  local function look_at_some(index, least, most)
    local rows, best, is_exact, before = Ageing.walk(index, least, most), math.huge, Ageing.deep() == 1, Ageing.passed()
    while rows.peek() and rows.peek().rank <= best and not (is_exact and best < math.huge) do
      local passed = Ageing.passed() - before
      if passed >= ROWS or passed >= QUEUES and best < math.huge then
        break
      end
      local row, _, priority = rows.take()
      local is_right, rank = note_row(row, priority)
      best = is_right and math.min(best, rank) or best
    end
    return best < math.huge
  end

  local function look_at_queues(jobtype, least, most)
    local has_loose = look_at_some(K.loose .. jobtype, least, most)
    return look_at_some(K.queues .. jobtype, least, most) or has_loose
  end

  local function look_at(jobtype, least, most)
    local one = Ageing.levels(jobtype, least, most)[1]
    if one then
      note(jobtype, one.rank, one.id, one.priority)
    end
    return Queues.some() and look_at_queues(jobtype, least, most) or one ~= nil
  end

  -- How many were found, and whether there may be more.
  local function look_at_all(tenant, least, most, besides, count)
    local index, seen, found, before = Queues.all_of(tenant), {}, 0, Ageing.passed()
    local rows = Ageing.walk(index, least, most)
    while found < limit and rows.peek() do
      if Ageing.passed() - before > ROWS + count then
        return seen, found, true
      end
      local row, _, priority = rows.take()
      local id, queue = row:match('^([^:]*):(.*)$')
      local jobtype = Queues.type_of(queue or '')
      if not seen[jobtype] and not besides[jobtype] and Wishes.is_of(tenant, jobtype) then
        if note_row(row, priority) then
          seen[jobtype], found = true, found + 1
          if Ageing.has_date(id) then  -- another of its levels, or of its queues, may be better
            look_at(jobtype, least, most)
          end
        end
      end
    end
    return seen, found, false
  end

  -- Those with the best priorities: so many rows of others stand before them that age cannot be asked for.
  local function look_at_others(tenant, least, most, besides, seen, found)
    for _, jobtype in ipairs(redis.call('ZRANGE', K.types, '-inf', most, 'BYSCORE', 'LIMIT', 0, ROWS)) do
      if found < limit and not besides[jobtype] and not seen[jobtype] and Wishes.is_of(tenant, jobtype) then
        found = found + (look_at(jobtype, least, most) and 1 or 0)
      end
    end
  end

  -- Some of those jobs that had dates and went without a claim: as long as one is noted, each look and claim asks for dates.
  local function notes_of_gone()
    local DRAWN, ids = 4, {}
    if Ageing.deep() > 1 then
      for _, id in ipairs(redis.call('ZRANDMEMBER', K.aged, DRAWN)) do
        local waits = redis.call('HEXISTS', K.jobs, id) == 1 and not redis.call('ZSCORE', K.ended, id) and not redis.call('ZSCORE', K.dead, id)
        ids[#ids + 1] = id:sub(1, 1) ~= '@' and not waits and id or nil
      end
    end
    return ids
  end

  Wishes.each(FIRST, look_at, function(tenant, least, most, besides, count)
    local seen, found, is_more = look_at_all(tenant, least, most, besides, count)
    if is_more then
      look_at_others(tenant, least, most, besides, seen, found)
    end
  end)
  local gone = notes_of_gone()
  Ageing.forget(gone)

  local answer = {}
  for _, jobtype in ipairs(jobtypes) do
    local head = best[jobtype]
    for _, value in ipairs({jobtype, head.priority, head.id, Pages.all_waiting_of(jobtype), Deaths.is_suspect(head.id) and 1 or 0, string.format('%.0f', head.rank)}) do
      answer[#answer + 1] = value
    end
  end
  return answer
end)
