-- In which order jobs run that age: a job gains a step of priority with each period it waits (docs/adr/0048).
--
--     rank    priority + periods between 1970 and the instant it became ready: the smallest goes first. It never changes while a job waits, and all that became
--             ready in one period and were pushed with one priority are equal
--
-- The period is a rule of the store: in `life`, `period` (ms), none where jobs do not age; "ages:<sysid>": the period of that daemon. When a job became ready its level says (lines.lua), as the beginning of a period: levels of one priority stand by age
-- in each index, so nothing is to be written when the period is changed, and a look merges the priorities. What waited before jobs aged is as old as the first of it.
-- Gives since(id, date_ms, generation or nil: as it is here) → that part of its level, for a job that becomes ready now; rank(since, priority, period_ms, id): id where `since` is "-";
-- say_period(sysid, period_ms) → flat, of the living daemons where it is another: sysid, period_ms, 0: they do not age there;
-- walk(key, least, most, period_ms, wanted) → a function that gives row, its priority, rank of the next one of an index whose rows begin with a level: by rank, then by age; nil at the end.
-- period_ms 0: by priority. Of more than PRIORITIES in use those behind are seen by chance, some at a time, and `wanted`, if it is given.
Ages.PRIORITIES = 100  -- in use, merged
Ages.DRAWN = 8  -- rows of which the priority is met by chance
Ages.CHUNK = 32  -- rows of an index read at once

function starts.period_ms() return tonumber(redis.call('HGET', K.life, 'period') or nil) or false end

-- Since when a job is ready that becomes it now. One that began anew (it had ended, or was replaced) ages from then on, also after an attempt that failed: else a
-- month of dead jobs, tried again, went before all that is fresh. The first content under a pusher's id has a generation, too: of when it was pushed.
local MICROS, SOON_MS = 1000, 1000
function Ages.since(id, date_ms, generation)
  local period_ms = call.period_ms
  if not period_ms then
    return '-'
  end
  local pushed_ms = Order.pushed_ms(id)
  local row = not generation and call.has_changes and redis.call('HGET', K.generation, id) or ''
  local anew_ms = math.floor((generation or tonumber(row:match(':(%d+)') or nil) or 0) / MICROS)
  local since_ms = math.max(pushed_ms, date_ms, anew_ms - pushed_ms > SOON_MS and anew_ms or 0)
  return string.format('%013.0f', since_ms - since_ms % period_ms)
end

function Ages.rank(since, priority, period_ms, id)
  return tonumber(priority) + math.floor((tonumber(since) or Order.pushed_ms(id or '')) / period_ms)
end

function Ages.say_period(sysid, period_ms)
  if period_ms == 0 and not call.period_ms then
    return {}
  end
  local rows, periods, others, ages = redis.call('HGETALL', K.life), {}, {}, period_ms > 0
  for at = 1, #rows, 2 do
    local its = rows[at]:match('^ages:(.*)$')
    if its then
      periods[its] = tonumber(rows[at + 1])
    end
  end
  periods[sysid] = period_ms
  for at, row in ipairs(redis.call('HKEYS', K.members)) do
    local _, epoch = Members.member(row)
    local its = periods[row] or 0
    if row ~= sysid and epoch ~= 0 then
      ages = ages or its > 0
      if its ~= period_ms then
        others[#others + 1], others[#others + 2] = row, string.format('%.0f', its)
      end
    end
  end
  for its in pairs(periods) do
    if not ages or its ~= sysid and not Members.member(its) then
      redis.call('HDEL', K.life, 'ages:' .. its)
    end
  end
  if not ages then
    redis.call('HDEL', K.life, 'period')
  else
    redis.call('HSET', K.life, 'ages:' .. sysid, digits(period_ms))
  end
  if ages and not call.period_ms then
    redis.call('HSET', K.life, 'aged', '1')  -- from now on there may be levels of more than one age
  end
  if period_ms > 0 then
    redis.call('HSET', K.life, 'period', digits(period_ms))
  end
  return others
end

local function by_priority(key, least, most)
  local rows, at, offset = {}, 1, 0
  return function()
    if at > #rows and offset then
      rows = redis.call('ZRANGE', key, least, most, 'BYSCORE', 'LIMIT', offset, Ages.CHUNK, 'WITHSCORES')
      at, offset = 1, #rows == 2 * Ages.CHUNK and offset + Ages.CHUNK or nil
    end
    local row, priority = rows[at], rows[at + 1]
    at = at + 2
    return row, priority, tonumber(priority or nil)
  end
end

local function is_ahead(one, other)
  return one.rank < other.rank or one.rank == other.rank and Order.before(one.rows[one.at], other.rows[other.at])
end

-- Goes on to the next row of a priority. Whether there is one.
local function go_on(one, key, period_ms)
  one.at = one.at + 1
  if one.at > #one.rows and one.offset then
    one.rows = redis.call('ZRANGE', key, one.priority, one.priority, 'BYSCORE', 'LIMIT', one.offset, Ages.CHUNK)
    one.at, one.offset = 1, #one.rows == Ages.CHUNK and one.offset + Ages.CHUNK or nil
  end
  local row = one.rows[one.at]
  local since, id = (row or ''):match('^([^:!]+)[:!][^:]+:?(%w*)')
  if since == '-' and id == '' then
    id = Lines.first_of(row, key:sub(#K.levels + 1))
  end
  one.rank = row and Ages.rank(since, one.priority, period_ms, id)
  return row ~= nil
end

-- Of each priority in use one, but for those that are left out: so many there are.
local function priorities_of(key, least, most, wanted)
  local found, from, seen = {}, least, {}
  for _ = 1, Ages.PRIORITIES do
    local _, priority = unpack(redis.call('ZRANGE', key, from, most, 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES'))
    if not priority then
      return found
    end
    found[#found + 1], seen[priority], from = priority, true, '(' .. priority
  end
  local drawn = redis.call('ZRANDMEMBER', key, Ages.DRAWN)
  for at, row in ipairs(drawn) do
    drawn[at] = row:match('^[^:!]+[:!]([^:]+)')
  end
  drawn[#drawn + 1] = wanted and string.format('%.0f', wanted)
  for _, priority in ipairs(drawn) do
    local its = tonumber(priority)
    if not seen[priority] and its >= least and its <= most then
      found[#found + 1], seen[priority] = priority, true
    end
  end
  return found
end

local function by_rank(key, least, most, period_ms, wanted)
  local pool = {}
  for _, priority in ipairs(priorities_of(key, least, most, wanted)) do
    local one = {priority = priority, rows = {}, at = 0, offset = 0, rank = false}
    pool[#pool + 1] = go_on(one, key, period_ms) and one or nil
  end
  table.sort(pool, is_ahead)
  return function()
    local one = pool[1]
    if not one then
      return nil
    end
    local row, priority, rank = one.rows[one.at], one.priority, one.rank
    table.remove(pool, 1)
    if go_on(one, key, period_ms) then
      local at = 1
      while pool[at] and not is_ahead(one, pool[at]) do
        at = at + 1
      end
      table.insert(pool, at, one)
    end
    return row, priority, rank
  end
end

function Ages.walk(key, least, most, period_ms, wanted)
  return period_ms > 0 and by_rank(key, least, most, period_ms, wanted) or by_priority(key, least, most)
end
