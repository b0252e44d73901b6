-- Returns which of the wanted jobtypes have ready jobs, and the best of these jobs of each.
-- ARGV     1    now_ms
--          2    limit
--          3    1: by rank (shared/ageing.lua) instead of priority
--          then for each demand (shared/demand.lua): jobtype; or for any type the part before those of a tenant,
--          nothing
--               for the tenant "". priority_min, priority_max, number of jobtypes that "any" leaves out, these
-- Returns  flat: jobtype, priority and id of its first wanted job, number waiting, 1 if that job is a suspect, its
--          rank; in no order. Of "any" the best `limit`
-- Errors   none
-- Cost     O(jobtypes named + limit + those left out), however many unwanted jobs wait. A jobtype with jobs of many
--          priorities costs up to HEADS rows. By rank O(priorities in use) more for each index
register('get_waiting_jobtypes', {'no-writes'}, function()
  local now_ms, limit, ages = clock(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'
  local FIRST = 4
  local CHUNK, HEADS = 128, 1024  -- rows read together, and at most: more than one claim takes

  Ageing.begin(now_ms)
  local jobtypes, best = {}, {}

  local function note(jobtype, id, score)
    local known, rank = best[jobtype], ages and Ageing.rank(tonumber(score), id) or Ageing.priority_of(score)
    if not known then
      table.insert(jobtypes, jobtype)
    end
    if not known or Order.precedes(rank, id, known.rank, known.id) then
      best[jobtype] = {id = id, priority = Ageing.priority_of(score), rank = rank}
    end
  end

  -- Returns a function that returns the next row of an index, and its score.
  local function rows_of(index, least, most)
    if ages then
      return Ageing.walk(index, least, most)
    end
    local rows, at, offset = {}, 1, 0
    return function()
      if at > #rows and offset >= 0 then
        rows = redis.call('ZRANGE', index, least, most + Ageing.LAST, 'BYSCORE', 'LIMIT', offset, CHUNK, 'WITHSCORES')
        at, offset = 1, #rows == 2 * CHUNK and offset + CHUNK or -1
        Queues.learn_paged_of(rows)
      end
      at = at + 2
      return rows[at - 2], rows[at - 1]
    end
  end

  -- Adds the best job in the keyed queues of a jobtype. Returns whether there is one.
  local function look_at_queues(jobtype, least, most)
    local loose, loose_priority = rows_of(Queues.loose_key(jobtype), least, most)()
    if loose then
      note(jobtype, loose:match('^[^:]*'), loose_priority)
    end
    local next_row = rows_of(K.queues .. jobtype, least, most)
    for _ = 1, CHUNK do
      local row, score = next_row()
      local id, queue = (row or ''):match('^([^:]*):(.*)$')
      if not row then
        break
      elseif Queues.head_of(queue, score) == id then
        note(jobtype, id, score)
        return true
      end
    end
    return loose ~= nil
  end

  -- Adds the best of the jobs without constraints of a jobtype. Returns whether there is one.
  local function look_at_plain(jobtype, least, most)
    local function first(from, to) return Queues.first_between(jobtype, from, to) end
    local id, score
    if ages then
      local level = Ageing.levels(least, most, nil, {ready_key(jobtype), Queues.backlog_key(jobtype)}, first)[1] or {}
      id, score = level.id, level.score
    else
      id, score = first(least, most + Ageing.LAST)
    end
    if id then
      note(jobtype, id, score)
    end
    return id ~= nil
  end

  -- Adds a jobtype if it has a job that may run: jobs that wait for a constraint would hide other jobtypes.
  local function look_at(jobtype, least, most)
    local is_plain = look_at_plain(jobtype, least, most)
    return call.has_keyed and look_at_queues(jobtype, least, most) or is_plain
  end

  -- Returns the jobtypes that were met, how many, and whether there may be more.
  local function look_at_all(tenant, least, most, besides)
    local seen, found, next_row = {}, 0, rows_of(Queues.all_of(tenant), least, most)
    for _ = 1, HEADS do
      local row, score = next_row()
      if not row or found == limit then
        return seen, found, false
      end
      local id, queue = row:match('^([^:]*):(.*)$')
      local jobtype = queue and Queues.type_of(queue)
      if jobtype and not seen[jobtype] and Demand.is_of(tenant, jobtype) and not besides[jobtype] then
        local first = Index.is_loose(queue, id) and id or Queues.head_of(queue, score)
        if first then
          seen[jobtype], found = true, found + 1
          note(jobtype, first, score)
        end
      end
    end
    return seen, found, true
  end

  -- Adds one row for each jobtype, however many priorities unwanted ones have, and skips other tenants' types.
  local function look_at_others(tenant, least, most, besides, number)
    local found, offset, size = 0, 0, limit + number
    while found < limit and offset < size + HEADS do
      local rows = redis.call('ZRANGE', K.types, '-inf', most + Ageing.LAST, 'BYSCORE', 'LIMIT', offset, size)
      for _, jobtype in ipairs(rows) do
        if found < limit and not besides[jobtype] and Demand.is_of(tenant, jobtype) then
          found = found + (look_at(jobtype, least, most) and 1 or 0)
        end
      end
      offset = #rows < size and size + HEADS or offset + size
    end
    if found == 0 then  -- all rows were of other tenants: this one's own index has none of those
      look_at_all(tenant, least, most, besides)
    end
  end

  Demand.each(FIRST, look_at, function(tenant, least, most, besides, count)
    local seen, found, are_more = besides, 0, count > 0
    if count == 0 or ages then
      seen, found, are_more = look_at_all(tenant, least, most, besides)
      for jobtype in pairs(besides) do
        seen[jobtype] = true
      end
    end
    if are_more and found < limit then
      look_at_others(tenant, least, most, seen, count + found)
    end
  end)

  local found = {}
  for _, jobtype in ipairs(jobtypes) do
    local head = best[jobtype]
    for _, value in ipairs({jobtype, head.priority, head.id, Pages.all_waiting_of(jobtype),
        Deaths.is_suspect(head.id) and 1 or 0, head.rank}) do
      table.insert(found, value)
    end
  end
  return found
end)
