-- Which jobtypes have ready jobs that the caller wants, and the best of these jobs of each.
-- ARGV     now_ms, limit, period_ms where jobs age or 0, then per wish: jobtype; or for any what stands before those of a tenant, nothing for those of
--          the tenant ""; priority_min, priority_max, number of jobtypes that are not meant by "any", those
-- Returns  flat: jobtype, priority and id of its first job that is wanted, number that may wait, 1 when that job may only run alone, its rank where jobs
--          age, else nothing; in no order. Of "any" the best `limit`
-- Errors   JQD_WRONG_TYPE, JQD_ARGUMENT
-- Cost     O(jobtypes named + limit + those not meant), however many unwanted jobs and lines wait. A jobtype with jobs of many priorities costs up to ROWS
--          rows of the index; where jobs age, the priorities in use, too
register('get_waiting_jobtypes', {'no-writes'}, function()
  local limit, period_ms = number(ARGV[2], 'limit'), number(ARGV[3], 'period_ms')
  local FIRST = 4
  local ROWS = 1024  -- of an index, for each wish, and one more for each jobtype that is not meant
  local TYPES = 1000  -- looked at by name where so many rows are of others

  expect('counts', 'life')
  local found, jobtypes = {}, {}

  local function note(jobtype, level, priority, rank, id)
    local known = found[jobtype]
    local its = {level = level, priority = tonumber(priority), rank = rank, id = id}
    if not known then
      jobtypes[#jobtypes + 1] = jobtype
    end
    if not known or Order.precedes(rank, level .. id, known.rank, known.level .. known.id) then
      found[jobtype] = its
    end
  end

  -- Whether it has a job that may run: all that wait for a constraint do not count, or they would hide other jobtypes.
  local function look_at(jobtype, least, most)
    Lines.expect_type(jobtype)
    local level, priority, rank = Ages.walk(K.levels .. jobtype, least, most, period_ms)()
    local id = level and Lines.first_of(level, jobtype)
    if id then
      note(jobtype, level, priority, rank, id)
    end
    return id ~= nil
  end

  -- How many were found, and whether there may be more.
  local function look_at_all(tenant, least, most, besides, count)
    local seen, number, index = {}, 0, K.heads .. tenant
    expect_kind(index, 'heads')
    local following = Ages.walk(index, least, most, period_ms)
    for _ = 1, ROWS + count do
      local row, priority, rank = following()
      if not row or number >= limit then
        return seen, number, false
      end
      local level, id, jobtype = row:match('^([^:!]+[:!][^:]+):([^:]*):(.*)$')
      if jobtype and not seen[jobtype] and not besides[jobtype] then
        seen[jobtype], number = true, number + 1
        note(jobtype, level, priority, rank, id)
      end
    end
    return seen, number, true
  end

  -- So many rows of others stand before them.
  local function look_at_others(tenant, least, most, besides, seen, number)
    local looked = 0
    for _, jobtype in ipairs(Counts.waiting_types()) do
      if looked < TYPES and number < limit and not seen[jobtype] and not besides[jobtype] and Wishes.is_of(tenant, jobtype) then
        looked, number = looked + 1, number + (look_at(jobtype, least, most) and 1 or 0)
      end
    end
  end

  Wishes.each(FIRST, look_at, function(tenant, least, most, besides, count)
    local seen, number, is_more = look_at_all(tenant, least, most, besides, count)
    if is_more then
      look_at_others(tenant, least, most, besides, seen, number)
    end
  end)

  local answer, waiting = {}, Counts.may_wait(jobtypes)
  for at, jobtype in ipairs(jobtypes) do
    local its = found[jobtype]
    local _, mark = Lines.split(its.level)
    for _, value in ipairs({jobtype, its.priority, its.id, waiting[at], mark == '!' and 1 or 0, period_ms > 0 and string.format('%.0f', its.rank) or ''}) do
      answer[#answer + 1] = value
    end
  end
  return answer
end)
