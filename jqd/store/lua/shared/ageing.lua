-- The order of jobs where jobs age: a job gains a step of priority with each period that it waits (docs/adr/0048). Its
-- rank never changes while it waits, so the sets stay sorted without being rewritten.
--
--     rank    priority + number of the period in which the job became ready; the smallest runs first, then the smaller
--             id. Periods are counted from 1970
--     score   under which a job waits: its priority; if it became ready in a later period than its id was made in, the
--             fraction is the number of that period. There are NUMBERS of these, then they begin anew
--     level   the jobs of one priority that had no date, or those that had one: their ranks grow with score and id
--     aged    hash  sysid → period (ms) of a daemon where jobs age; the empty field: the longest period, which counts.
--                   There is no such key if no daemon has one
--
-- After a change of the period, a waiting job that had a date has the rank of its push, at worst.
local PRIORITIES, DRAWN, CHUNK, MICROS = 100, 8, 64, 1000
local NUMBERS, UNIT = 2 ^ 22 - 1, 2 ^ -22  -- a double has 22 bits left behind 32
local AHEAD = 2 ^ 16  -- periods by which the clock may be set back while jobs wait
local SOON_MS = 1000  -- a generation that soon after the push is no change: an id of a pusher gives one at once
Ageing.LAST, Ageing.UNIT = NUMBERS * UNIT, UNIT  -- the greatest fraction of a score, and the smallest

function starts.period_ms() return is_here('aged') and tonumber(redis.call('HGET', K.aged, '') or nil) or 0 end

starts.periods = empty

-- Returns the priority in a score.
function Ageing.priority_of(score) return math.floor(tonumber(score)) end

local function number_of(ms) return call.period_ms > 0 and math.floor(ms / call.period_ms) or 0 end

-- Returns the number of the period in which an id was made.
local function period_of(id)
  local time = id:sub(1, 10)
  if not call.periods[time] then
    call.periods[time] = number_of(Order.pushed_ms(id))
  end
  return call.periods[time]
end

local function behind_point(number) return (number % NUMBERS + 1) * UNIT end

-- Returns the score of a job that becomes ready now. `date_ms`: 0 without a date; `generation`: nil: the one in the
-- store. A job that began anew (it had ended, or was replaced) ages from then on, even after a failed attempt: else a
-- month of dead jobs that are tried again would run before all that is fresh.
function Ageing.score_of(priority, id, date_ms, generation)
  if call.period_ms == 0 then
    return priority
  end
  local row = not generation and call.has_changes and redis.call('HGET', K.generation, id) or ''
  local anew_ms = math.floor((generation or tonumber(row:match(':(%d+)') or nil) or 0) / MICROS)
  local number = number_of(anew_ms - Order.pushed_ms(id) > SOON_MS and math.max(anew_ms, date_ms) or date_ms)
  return number > period_of(id) and priority + behind_point(number) or priority
end

-- To be called before the functions below.
function Ageing.begin(now_ms) call.last_number = number_of(now_ms) + AHEAD end

-- Returns the rank of a job: the smallest starts first.
function Ageing.rank(score, id)
  local priority = math.floor(score)
  if score == priority or call.period_ms == 0 then
    return priority + period_of(id)
  end
  local number = call.last_number - (call.last_number - ((score - priority) / UNIT - 1)) % NUMBERS
  -- A number of another period length may lie ahead: then the job counts as ready now.
  return priority + math.max(math.min(number, call.last_number - AHEAD), period_of(id))
end

local function is_ahead(one, other) return Order.precedes(one.rank, one.id, other.rank, other.id) end

-- Puts the first level where it belongs, after its rank grew.
local function sift_first(levels)
  local first_level, at = levels[1], 1
  while levels[at + 1] and is_ahead(levels[at + 1], first_level) do
    levels[at], at = levels[at + 1], at + 1
  end
  levels[at] = first_level
end

-- Reads the first job of a level. Returns whether there is one.
local function read_first(level, first)
  local id, score = first(level.from, level.to)
  if not id and level.behind then  -- on to the numbers behind those that began anew
    level.from, level.to = unpack(level.behind)
    level.behind = nil
    return read_first(level, first)
  elseif id then
    level.after = level.score == tonumber(score) and level.after or nil
    level.id, level.score = level.after and Order.before(id, level.after) and level.after or id, tonumber(score)
    level.rank = Ageing.rank(level.score, level.id)
  end
  return id ~= nil
end

-- Returns the levels between two priorities, best first: {rank, id, score} each. `first(from, to)` returns id and score
-- of the first job between two scores. If more than PRIORITIES priorities are in use, some of the others are seen by
-- chance, in the sets `keys`, and `wanted` if it is given.
function Ageing.levels(least, most, wanted, keys, first)
  local found, seen, from, are_more = {}, {}, least, true
  local function visit(priority)
    local newest, last = priority + behind_point(call.last_number), priority + Ageing.LAST
    local plain, dated = {from = priority, to = priority}, {from = newest + UNIT, to = last,
      behind = {priority + UNIT, newest}}
    found[#found + 1] = read_first(plain, first) and plain or nil
    found[#found + 1] = first(priority + UNIT, last) and read_first(dated, first) and dated or nil
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

-- Returns the first level as it is now, or nil. `level.after`: jobs before that id may not start.
function Ageing.refresh(levels, first)
  while levels[1] do
    local id, rank = levels[1].id, levels[1].rank
    if not read_first(levels[1], first) then
      table.remove(levels, 1)
    elseif levels[1].id == id and levels[1].rank == rank then
      return levels[1]
    else
      sift_first(levels)
    end
  end
  return nil
end

local ALPHABET, LAST_MS = '0123456789ABCDEFGHJKMNPQRSTVWXYZ', 32 ^ 10 - 1

-- Returns the least id that is made in a period.
local function id_of(period)
  local time, ms = '', math.max(0, math.min(LAST_MS, period * call.period_ms))
  for _ = 1, 10 do
    local digit = ms % 32 + 1
    time, ms = ALPHABET:sub(digit, digit) .. time, math.floor(ms / 32)
  end
  return time
end

-- Returns the least id of a level's score that does not run before a job of that rank and id.
function Ageing.until_id(level, rank, id)
  local LAST_ID = '~'
  if call.period_ms == 0 or level.score ~= math.floor(level.score) then
    return level.rank < rank and LAST_ID or id
  end
  local from, to = id_of(rank - level.score), id_of(rank - level.score + 1)
  local bound_id = Order.before(id, to) and id or to
  return Order.before(from, bound_id) and bound_id or from
end

-- Returns a function that returns row, score and rank of the next row of an index, nil at its end.
function Ageing.walk(index, least, most)
  local function first(from, to)
    return unpack(redis.call('ZRANGE', index, from, to, 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES'))
  end
  local pool = Ageing.levels(least, most, nil, {index}, first)
  -- Steps to the next row of a level; rows are read when the second one is wanted. Returns whether there is one.
  local function step(level)
    if not level.rows then
      level.rows, level.at, level.offset = {level.id, level.score}, 1, 1
    end
    level.at = level.at + 2
    if not level.rows[level.at] then
      level.rows, level.at = redis.call('ZRANGE', index, level.from, level.to, 'BYSCORE', 'LIMIT', level.offset, CHUNK,
        'WITHSCORES'), 1
      level.offset = level.offset + CHUNK
    end
    if level.rows[level.at] then
      level.id, level.score = level.rows[level.at], tonumber(level.rows[level.at + 1])
      level.rank = Ageing.rank(level.score, level.id)
      return true
    elseif level.behind then
      level.from, level.to, level.rows, level.behind = level.behind[1], level.behind[2], nil, nil
      return read_first(level, first)
    end
    return false
  end
  return function()
    local level = pool[1]
    if not level then
      return nil
    end
    local row, score, rank = level.id, level.score, level.rank
    if step(level) then
      sift_first(pool)
    else
      table.remove(pool, 1)
    end
    return row, score, rank
  end
end

-- Saves a daemon's period. Returns, flat, the living daemons with another one: sysid, period_ms (0: none).
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
    local other_ms = periods[other] or 0
    if other ~= sysid and epoch ~= 0 and other_ms ~= period_ms then
      others[#others + 1], others[#others + 2] = other, other_ms
    end
    if other ~= sysid and epoch ~= 0 and other_ms > 0 then
      redis.call('HSET', K.aged, other, other_ms)
      longest = math.max(longest, other_ms)
    end
  end
  if longest > 0 then
    redis.call('HSET', K.aged, '', longest, sysid, period_ms)
  end
  return others
end
