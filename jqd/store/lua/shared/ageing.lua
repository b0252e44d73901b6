-- In which order jobs run that age: a job gains a step of priority with each period it waits (docs/adr/0048).
--
--     rank    priority + periods between 1970 and the instant it became ready: the smallest goes first. It never changes while a job waits, and all
--             that became ready in one period and were pushed with one priority are equal
--     level   the jobs of a queue under one priority. They run by id, so a level has the rank of the best of its next DEEP jobs
--     aged    zset  id → since when (ms) it is ready, of jobs that had a date; an id tells when it was pushed, and the later one counts. "@<sysid>" → -period (ms) of a daemon that
--             lets jobs age; without one there is no such key
--
-- So nothing is written of jobs without a date: the rows of one priority stand by age in each index, and a look merges the priorities.
-- Gives ranks(priority, ids) → rank from each on; of_level(queue, priority, id): whose first job that is, after
-- levels(queue, least, most, priority) → {rank, id, priority} …, best first; walk(index, least, most, priority) → a function that gives row,
-- rank, priority of the next one, nil at the end; passed() → rows that walks gave; deep(): jobs of a level that say its rank; forget(ids): they wait no more; has_date(id): whether it had one;
-- before_rank(period, id): the least id that is not before that one in a level where that period has its rank. Of more than PRIORITIES in use those behind are seen by chance, some at a time, and `priority`, if it is given.
Ageing.PRIORITIES, Ageing.DRAWN, Ageing.CHUNK, Ageing.AHEAD, Ageing.DEEP = 100, 8, 64, 256, 100
function starts.period_ms() return 0 end

starts.periods, starts.walked = empty, function() return 0 end
function Ageing.begin(period_ms)
  call.period_ms = period_ms
  call.has_dates = redis.call('ZCOUNT', K.aged, 0, '+inf') > 0
end

function Ageing.passed() return call.walked end
function Ageing.deep() return call.has_dates and Ageing.DEEP or 1 end

function Ageing.forget(ids)
  if call.has_dates and #ids > 0 then
    redis.call('ZREM', K.aged, unpack(ids))
  end
end

-- In which period (from 1970 on) an id was given.
local function period_of(id)
  local time = id:sub(1, 10)
  if not call.periods[time] then
    call.periods[time] = math.floor(Order.pushed_ms(id) / call.period_ms)
  end
  return call.periods[time]
end

function Ageing.ranks(priority, ids)
  local dates = call.has_dates and #ids > 0 and redis.call('ZMSCORE', K.aged, unpack(ids)) or {}
  local ranks, best = {}, math.huge
  for at = #ids, 1, -1 do
    local since = period_of(ids[at])
    if dates[at] then  -- a date that had passed when it was pushed makes it no older
      since = math.max(since, math.floor(tonumber(dates[at]) / call.period_ms))
    end
    best = math.min(best, priority + since)
    ranks[at] = best
  end
  return ranks
end

local function id_of(ms)
  local time = ''
  for _ = 1, 10 do
    local digit = ms % 32 + 1
    time, ms = ('0123456789ABCDEFGHJKMNPQRSTVWXYZ'):sub(digit, digit) .. time, math.floor(ms / 32)
  end
  return time
end

function Ageing.before_rank(period, id)
  local from, to = id_of(math.max(0, period * call.period_ms)), id_of(math.max(0, (period + 1) * call.period_ms))
  local its = Order.before(id, to) and id or to
  return Order.before(from, its) and its or from
end

function Ageing.of_level(queue, priority, id)
  priority = tonumber(priority)
  if call.has_dates and redis.call('ZSCORE', K.aged, id) then  -- what stands behind it may be older
    return Ageing.ranks(priority, (Pages.first_of(queue, Ageing.DEEP, priority, priority)))[1]
  end
  return priority + period_of(id)
end

local function is_ahead(one, other) return Order.precedes(one.rank, one.id, other.rank, other.id) end

-- Calls `visit(priority)` for priorities of more than that which some members of a set have.
local function draw(key, last, most, visit)
  local rows = redis.call('EXISTS', key) == 1 and redis.call('ZRANDMEMBER', key, Ageing.DRAWN) or {}
  for _, row in ipairs(rows) do
    local priority = tonumber(redis.call('ZSCORE', key, row))
    if priority > last and priority <= most then
      visit(priority)
    end
  end
end

-- Calls `first(from, to)` → id, priority, for each priority in use. `first`: nil where there is none.
local function each_priority(least, most, wanted, keys, first, visit)
  local from, last, seen = least, nil, {}
  for _ = 1, Ageing.PRIORITIES do
    local id, priority = first(from, most)
    if not id then
      return
    end
    last, from = tonumber(priority), '(' .. priority
    visit(id, last)
  end
  local function visit_once(priority)
    local id = not seen[priority] and first(priority, priority)
    seen[priority] = true
    if id then
      visit(id, priority)
    end
  end
  if wanted and wanted > last and wanted <= most then
    visit_once(wanted)
  end
  for _, key in ipairs(keys) do
    draw(key, last, most, visit_once)
  end
end

function Ageing.levels(queue, least, most, wanted)
  local found = {}
  local keys = {ready_key(queue), Queues.paged_of(queue) > 0 and Queues.backlog_key(queue) or nil}
  each_priority(least, most, wanted, keys, function(from, to) return Queues.first_between(queue, from, to) end, function(id, priority)
    found[#found + 1] = {rank = Ageing.of_level(queue, priority, id), id = id, priority = priority}
  end)
  table.sort(found, is_ahead)
  return found
end

function Ageing.has_date(id) return call.has_dates and redis.call('ZSCORE', K.aged, id) end

-- The next rows of one priority of an index. Whether there are any. Of rows of jobs that had dates a later one may be ahead, so it is read on up to one that had none.
local function read(one, index)
  local rows, ranks, best = {}, {}, math.huge
  repeat
    local more, ids = redis.call('ZRANGE', index, one.priority, one.priority, 'BYSCORE', 'LIMIT', one.offset, Ageing.CHUNK), {}
    for at, row in ipairs(more) do
      ids[at], rows[#rows + 1] = row:match('^[^:]*'), row
    end
    one.offset = one.offset + #more
    local dates = call.has_dates and #ids > 0 and redis.call('ZMSCORE', K.aged, unpack(ids)) or {}
    for at, row in ipairs(more) do
      local queue = dates[at] and row:match(':(.*)$')
      ranks[#ranks + 1] = queue and Ageing.of_level(queue, one.priority, ids[at]) or one.priority + period_of(ids[at])
    end
  until not dates[#more] or #more < Ageing.CHUNK or #rows >= Ageing.AHEAD
  for at = #rows, 1, -1 do
    best = math.min(best, ranks[at])
    ranks[at] = best
  end
  one.rows, one.ranks, one.at, one.rank, one.id = rows, ranks, 1, ranks[1], rows[1]
  return #rows > 0
end

function Ageing.walk(index, least, most, wanted)
  local pool = {}
  local function first(from, to)
    return unpack(redis.call('ZRANGE', index, from, to, 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES'))
  end
  each_priority(least, most, wanted, {index}, first, function(row, priority)
    local one = {priority = priority, offset = 0}
    if Ageing.has_date(row:match('^[^:]*')) then
      read(one, index)
    else  -- nearly always one is enough
      one.rows, one.ranks, one.at, one.offset = {row}, {priority + period_of(row)}, 1, 1
      one.rank, one.id = one.ranks[1], row
    end
    pool[#pool + 1] = one
  end)
  table.sort(pool, is_ahead)
  local function go_on()
    local one = pool[1]
    one.at = one.at + 1
    one.rank, one.id = one.ranks[one.at], one.rows[one.at]
    if not one.id and not read(one, index) then
      table.remove(pool, 1)
      return
    end
    local at = 1
    while pool[at + 1] and is_ahead(pool[at + 1], one) do
      pool[at], at = pool[at + 1], at + 1
    end
    pool[at] = one
  end
  return {
    peek = function() return pool[1] end,
    take = function()
      local one = pool[1]
      if not one then
        return nil
      end
      local row, rank, priority = one.id, one.rank, one.priority
      call.walked = call.walked + 1
      go_on()
      return row, rank, priority
    end,
  }
end
