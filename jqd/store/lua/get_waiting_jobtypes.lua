-- Which jobtypes have ready jobs that the caller wants, and the best of these jobs of each.
-- ARGV     now_ms, limit, then per wish: jobtype; or for any what stands before those of a tenant, nothing for those of the
--          tenant ""; priority_min, priority_max, number of jobtypes that are not meant by "any", those
-- Returns  flat: jobtype, priority and id of its first job that is wanted, number waiting, 1 when that job may only run alone;
--          in no order. Of "any" the best `limit`
-- Errors   JQD_ARGUMENT
-- Cost     O(jobtypes named + limit + those not meant), however many unwanted jobs wait. A jobtype with jobs of many
--          priorities costs up to HEADS rows
register('get_waiting_jobtypes', {'no-writes'}, function()
  local limit = number(ARGV[2], 'limit')
  local FIRST = 3
  local CHUNK, HEADS = 128, 1024  -- rows read at once, and at most: more than one claim takes

  local jobtypes, best = {}, {}

  local function note(jobtype, id, priority)
    local known = best[jobtype]
    if not known then
      table.insert(jobtypes, jobtype)
    end
    if not known or Order.precedes(tonumber(priority), id, tonumber(known.priority), known.id) then
      best[jobtype] = {id = id, priority = priority}
    end
  end

  -- Of a jobtype's keyed queues the best. Whether there is one.
  local function look_at_queues(jobtype, priority_min, priority_max)
    local loose, its = unpack(redis.call('ZRANGE', Queues.loose_key(jobtype), priority_min, priority_max, 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES'))
    if loose then
      note(jobtype, loose:match('^[^:]*'), its)
    end
    local rows = redis.call('ZRANGE', K.queues .. jobtype, priority_min, priority_max, 'BYSCORE', 'LIMIT', 0, CHUNK, 'WITHSCORES')
    for at = 1, #rows, 2 do
      local id, queue = rows[at]:match('^([^:]*):(.*)$')
      if Queues.head_of(queue, rows[at + 1]) == id then
        note(jobtype, id, rows[at + 1])
        return true
      end
    end
    return loose ~= nil
  end

  -- Whether it has a job that may run: all that wait for a constraint do not count, or they would hide other jobtypes.
  local function look_at(jobtype, priority_min, priority_max)
    local id, priority = Queues.first_between(jobtype, priority_min, priority_max)
    if id then
      note(jobtype, id, priority)
    end
    local is_keyed = Queues.some() and look_at_queues(jobtype, priority_min, priority_max)
    return id ~= nil or is_keyed
  end

  local function look_at_all(tenant, priority_min, priority_max, besides)
    local seen, number, offset, index = {}, 0, 0, Queues.all_of(tenant)
    while number < limit and offset < HEADS do
      local rows = redis.call('ZRANGE', index, priority_min, priority_max, 'BYSCORE', 'LIMIT', offset, CHUNK, 'WITHSCORES')
      Queues.learn_paged_of(rows)
      for at = 1, #rows, 2 do
        local id, queue = rows[at]:match('^([^:]*):(.*)$')
        local jobtype = queue and Queues.type_of(queue)
        if jobtype and not seen[jobtype] and number < limit and Wishes.is_of(tenant, jobtype) and not besides[jobtype] then
          local first = Heads.is_loose(queue, id) and id or Queues.head_of(queue, rows[at + 1])
          if first then
            seen[jobtype], number = true, number + 1
            note(jobtype, first, rows[at + 1])
          end
        end
      end
      offset = #rows < 2 * CHUNK and HEADS or offset + CHUNK
    end
    return seen, number, offset
  end

  -- One row for each jobtype, however many priorities those have that are not meant. Those of other tenants are passed over.
  local function look_at_others(tenant, priority_min, priority_max, besides, number)
    local found, offset, size = 0, 0, limit + number
    while found < limit and offset < size + HEADS do
      local rows = redis.call('ZRANGE', K.types, '-inf', priority_max, 'BYSCORE', 'LIMIT', offset, size)
      for _, jobtype in ipairs(rows) do
        if found < limit and not besides[jobtype] and Wishes.is_of(tenant, jobtype) then
          found = found + (look_at(jobtype, priority_min, priority_max) and 1 or 0)
        end
      end
      offset = #rows < size and size + HEADS or offset + size
    end
    if found == 0 then  -- so many better types of others: its own index has none of theirs
      look_at_all(tenant, priority_min, priority_max, besides)
    end
  end

  Wishes.each(FIRST, look_at, function(tenant, least, most, besides, count)
    if count > 0 then
      look_at_others(tenant, least, most, besides, count)
    else
      local seen, found, looked = look_at_all(tenant, least, most, besides)
      if Queues.some() and found < limit and looked >= HEADS then  -- the queues of one may have had all rows
        look_at_others(tenant, least, most, seen, found)
      end
    end
  end)

  local found = {}
  for _, jobtype in ipairs(jobtypes) do
    local head = best[jobtype]
    for _, value in ipairs({jobtype, head.priority, head.id, Pages.all_waiting_of(jobtype), Deaths.is_suspect(head.id) and 1 or 0}) do
      table.insert(found, value)
    end
  end
  return found
end)
