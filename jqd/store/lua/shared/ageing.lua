-- In which order jobs run that age: a job gains a step of priority with each period it waits (docs/adr/0048).
--
--     rank    priority + periods between 1970 and the instant it became ready: the smallest goes first, of equal ones
--             the smaller id. It never changes while a job waits
--     score   under which a job waits: its priority; of one that became ready in a later period than its id tells,
--             behind the point, the number of that period. There is room for NUMBERS of them, then they begin anew
--     level   the jobs of a priority that all had no date, or all had one: their ranks grow with score and id
--     aged    hash  sysid → period (ms) of a daemon that lets jobs age; the empty field: the longest, which counts.
--                   Without one there is no such key
--
-- After a change of the period, who had a date and waits has the rank of its push at worst.
local PRIORITIES, DRAWN, CHUNK, MICROS = 100, 8, 64, 1000
local NUMBERS, UNIT = 2 ^ 22 - 1, 2 ^ -22  -- what a double has room for behind 32 bits
local AHEAD = 2 ^ 16  -- periods by which the clock may be set back while jobs wait
local SOON_MS = 1000  -- the first content under a pusher's id has a generation, too: of when it was pushed
Ageing.LAST, Ageing.UNIT = NUMBERS * UNIT, UNIT  -- behind the point: the most, and between two

function starts.period_ms() return is_here('aged') and tonumber(redis.call('HGET', K.aged, '') or nil) or 0 end

starts.periods = empty

-- The priority in a score.
function Ageing.priority_of(score) return math.floor(tonumber(score)) end

local function number_of(ms) return call.period_ms > 0 and math.floor(ms / call.period_ms) or 0 end

-- In which period an id was given.
local function period_of(id)
  local time = id:sub(1, 10)
  if not call.periods[time] then
    call.periods[time] = number_of(Order.pushed_ms(id))
  end
  return call.periods[time]
end

local function behind_point(number) return (number % NUMBERS + 1) * UNIT end

-- The score of a job that becomes ready now. date_ms: 0 for one without a date; generation: nil for the one that is
-- here. What began anew (it had ended, or was replaced) ages from then on, also after an attempt that failed: else a
-- month of dead jobs, tried again, went before all that is fresh.
function Ageing.score_of(priority, id, date_ms, generation)
  if call.period_ms == 0 then
    return priority
  end
  local row = not generation and call.has_changes and redis.call('HGET', K.generation, id) or ''
  local anew_ms = math.floor((generation or tonumber(row:match(':(%d+)') or nil) or 0) / MICROS)
  local number = number_of(anew_ms - Order.pushed_ms(id) > SOON_MS and math.max(anew_ms, date_ms) or date_ms)
  return number > period_of(id) and priority + behind_point(number) or priority
end

-- To be called before all that follows.
function Ageing.begin(now_ms) call.last_number = number_of(now_ms) + AHEAD end

-- Where a job stands with its age: the less, the sooner it starts.
function Ageing.rank(score, id)
  local priority = math.floor(score)
  if score == priority or call.period_ms == 0 then
    return priority + period_of(id)
  end
  local number = call.last_number - (call.last_number - ((score - priority) / UNIT - 1)) % NUMBERS
  -- A number of another period may lie ahead: then it counts from now, and not from a time to come.
  return priority + math.max(math.min(number, call.last_number - AHEAD), period_of(id))
end

local function is_ahead(one, other) return Order.precedes(one.rank, one.id, other.rank, other.id) end

-- Lays the first where it belongs.
local function settle(levels)
  local one, at = levels[1], 1
  while levels[at + 1] and is_ahead(levels[at + 1], one) do
    levels[at], at = levels[at + 1], at + 1
  end
  levels[at] = one
end

-- Reads which is its first. Whether there is one.
local function look(level, first)
  local id, score = first(level.from, level.to)
  if not id and level.behind then  -- numbers that began anew
    level.from, level.to = unpack(level.behind)
    level.behind = nil
    return look(level, first)
  elseif id then
    level.after = level.score == tonumber(score) and level.after or nil
    level.id, level.score = level.after and Order.before(id, level.after) and level.after or id, tonumber(score)
    level.rank = Ageing.rank(level.score, level.id)
  end
  return id ~= nil
end

-- The scores between two that are in use, best first: {rank, id, score} …; `first(from, to)` gives id and score of the
-- first job between two scores. Of more than PRIORITIES in use those behind are seen by chance, some in the set `key`,
-- and `wanted`, if it is given.
function Ageing.levels(least, most, wanted, keys, first)
  local found, seen, from, are_more = {}, {}, least, true
  local function visit(priority)
    local newest, last = priority + behind_point(call.last_number), priority + Ageing.LAST
    local plain, dated = {from = priority, to = priority}, {from = newest + UNIT, to = last,
      behind = {priority + UNIT, newest}}
    found[#found + 1] = look(plain, first) and plain or nil
    found[#found + 1] = first(priority + UNIT, last) and look(dated, first) and dated or nil
    seen[priority] = true
  end
  local function visit_once(priority)
    if not seen[priority] and least <= priority and priority <= most then
      visit(priority)
    end
  end
  for _ = 1, PRIORITIES do
    local id, score = first(from, most + Ageing.LAST)
    if not id then
      are_more = false
      break
    end
    visit(Ageing.priority_of(score))
    from = Ageing.priority_of(score) + 1
  end
  for _, key in ipairs(are_more and keys or {}) do
    for _, row in ipairs(redis.call('EXISTS', key) == 1 and redis.call('ZRANDMEMBER', key, DRAWN) or {}) do
      visit_once(Ageing.priority_of(redis.call('ZSCORE', key, row)))
    end
  end
  if are_more and wanted then
    visit_once(wanted)
  end
  table.sort(found, is_ahead)
  return found
end

-- The first of these levels as it is now, nil where there is none. A level's `after`: what stands before that id may
-- not start.
function Ageing.refresh(levels, first)
  while levels[1] do
    local id, rank = levels[1].id, levels[1].rank
    if not look(levels[1], first) then
      table.remove(levels, 1)
    elseif levels[1].id == id and levels[1].rank == rank then
      return levels[1]
    else
      settle(levels)
    end
  end
  return nil
end

local ALPHABET, LAST_MS = '0123456789ABCDEFGHJKMNPQRSTVWXYZ', 32 ^ 10 - 1

-- The least id that is given in that period.
local function id_of(period)
  local time, ms = '', math.max(0, math.min(LAST_MS, period * call.period_ms))
  for _ = 1, 10 do
    local digit = ms % 32 + 1
    time, ms = ALPHABET:sub(digit, digit) .. time, math.floor(ms / 32)
  end
  return time
end

-- The least id of that level's score that does not go before a job of that rank and id.
function Ageing.until_id(level, rank, id)
  local LAST_ID = '~'
  if call.period_ms == 0 or level.score ~= math.floor(level.score) then
    return level.rank < rank and LAST_ID or id
  end
  local from, to = id_of(rank - level.score), id_of(rank - level.score + 1)
  local its = Order.before(id, to) and id or to
  return Order.before(from, its) and its or from
end

-- A function that gives row, score and rank of the next one of an index each time it is called, nil at the end.
function Ageing.walk(index, least, most, wanted)
  local function first(from, to)
    return unpack(redis.call('ZRANGE', index, from, to, 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES'))
  end
  local pool = Ageing.levels(least, most, wanted, {index}, first)
  -- To the next row of a level: nearly always the one that was found is enough. Whether there is one.
  local function go_on(one)
    if not one.rows then
      one.rows, one.at, one.offset = {one.id, one.score}, 1, 1
    end
    one.at = one.at + 2
    if not one.rows[one.at] then
      one.rows, one.at = redis.call('ZRANGE', index, one.from, one.to, 'BYSCORE', 'LIMIT', one.offset, CHUNK,
        'WITHSCORES'), 1
      one.offset = one.offset + CHUNK
    end
    if one.rows[one.at] then
      one.id, one.score = one.rows[one.at], tonumber(one.rows[one.at + 1])
      one.rank = Ageing.rank(one.score, one.id)
      return true
    elseif one.behind then
      one.from, one.to, one.rows, one.behind = one.behind[1], one.behind[2], nil, nil
      return look(one, first)
    end
    return false
  end
  return function()
    local one = pool[1]
    if not one then
      return nil
    end
    local row, score, rank = one.id, one.score, one.rank
    if go_on(one) then
      settle(pool)
    else
      table.remove(pool, 1)
    end
    return row, score, rank
  end
end

-- A daemon says its period. Returns, flat, of the living daemons where it is another: sysid and period_ms, 0 where they
-- do not age.
function Ageing.say_period(sysid, period_ms)
  if period_ms == 0 and redis.call('EXISTS', K.aged) == 0 then
    return {}
  end
  local rows, others, periods, longest = redis.call('HGETALL', K.aged), {}, {}, period_ms
  for at = 1, #rows, 2 do
    periods[rows[at]] = tonumber(rows[at + 1])
  end
  rows = redis.call('HGETALL', K.members)
  redis.call('UNLINK', K.aged)
  for at = 1, #rows, 2 do
    local other, _, epoch = rows[at], Members.member_of(rows[at + 1])
    local its = periods[other] or 0
    if other ~= sysid and epoch ~= 0 and its ~= period_ms then
      others[#others + 1], others[#others + 2] = other, its
    end
    if other ~= sysid and epoch ~= 0 and its > 0 then
      redis.call('HSET', K.aged, other, its)
      longest = math.max(longest, its)
    end
  end
  if longest > 0 then
    redis.call('HSET', K.aged, '', longest, sysid, period_ms)
  end
  return others
end
