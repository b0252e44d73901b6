-- Which jobs of a jobtype may start now, of all its lines: the best level first, and of one level lines in turn.
-- Gives choose(wish) → {ids, of (the line of each), lines, alone, is_short}: `wish` has jobtype, limit, least and most (priorities), version, now_us, period_ms (0: they do not age), bound (no
-- rank behind it), wanted (priority or nothing), may (a suspect may be taken: then by itself). is_short: there may be more that was not looked at.
-- verify(chosen, rows, changed) → which of the first of them wait there, by place: no hint is trusted. settle(chosen, number, waits, fence, wish): of the first so many those were given, the
-- others' hints go; what may not go on is parked (parked.lua).
--
-- A line is read, and trimmed when all is decided: nothing is out of its line that is in no hand.
Choose.VISITS = 250  -- lines that give nothing, looked at in one claim; the next one meets the others
Choose.LEVELS = 500  -- looked at in one claim
Choose.STALE = 1000  -- stale hints met in one claim, beyond as many as it may take
Choose.LINES = 500  -- of one level, read at once
local UNLIMITED = {}

-- What limits a queue: flat, state and cost of each constraint. A queue that was found by other matchers its caller looks at.
local function allowed_of(queue, wish)
  if not Lines.is_keyed(queue) then
    return UNLIMITED
  end
  local items = Limits.items(queue)
  if items.version ~= wish.version then
    return UNLIMITED
  end
  local allowed = {}
  for place, item in ipairs(items) do
    allowed[2 * place - 1], allowed[2 * place] = Limits.state(item.bucket, item.name, item.cost, wish.now_us), item.cost or false
  end
  return allowed
end

local function most_of(allowed, limit)
  for place = 1, #allowed, 2 do
    limit = math.min(limit, Limits.may(allowed[place], allowed[place + 1]))
  end
  return limit
end

-- Whether it may start; then it is one of the chosen.
local function take(chosen, line, id)
  local ids, its = chosen.ids, line.ids
  if line.allowed ~= UNLIMITED and not Limits.use(line.allowed) then
    return false
  end
  its[#its + 1], ids[#ids + 1], line.read = id, id, line.read + 1
  chosen.of[#ids] = line
  if line.ends then
    line.ends[#its] = line.read
  end
  return true
end

-- Reads on in a line, `limit` jobs at most. Of a line that may have stale hints each is looked at.
local function read(chosen, line, limit, wish)
  local most = most_of(line.allowed, limit)
  while most >= 1 and line.has_more do
    local number = line.ends and math.max(most, 100) or most
    local first, last = '0', '1'  -- of one of many lines; the server takes its time to spell numbers
    if line.read > 0 or number > 1 then
      first, last = line.read, line.read + number
    end
    local ids = redis.pcall('LRANGE', line.key, first, last)
    if ids.err then
      fail('JQD_WRONG_TYPE', 'line')
    end
    local waits = line.ends and Hints.waiting(ids, line.priority, line.queue)
    line.has_more = #ids > number
    for at = 1, math.min(#ids, number) do
      local id = ids[at]
      if waits and not waits[id] then
        line.read, chosen.stale = line.read + 1, chosen.stale + 1
      elseif most < 1 or not take(chosen, line, id) then
        line.has_more, most = true, 0
        break
      else
        most = most - 1
        if waits then
          waits[id] = nil  -- it may have two hints
        end
      end
    end
    if chosen.stale > Choose.STALE + wish.limit then
      chosen.is_short = true
      return
    elseif not waits then
      return
    end
  end
end

local function open(level, priority, queue, turn, wish)
  local name = level .. ':' .. queue
  return {
    level = level, priority = priority, queue = queue, turn = turn, key = K.line .. name, allowed = allowed_of(queue, wish), ids = {}, given = 0, taken = {},
    read = 0, has_more = true, ends = call.has_stale and Lines.is_marked(priority, queue) and {},  -- hints read up to each that was taken
  }
end

-- Some lines of one level: their share of each first, then what is left of those that have more.
local function look_at_lines(chosen, level, priority, rows, limit, wish)
  local first, begun = #chosen.lines + 1, #chosen.ids
  Limits.put_off()
  for at = 1, #rows, 2 do
    chosen.lines[#chosen.lines + 1] = open(level, priority, rows[at], rows[at + 1], wish)
  end
  Limits.read_rates(wish.now_us)
  for at = first, #chosen.lines do
    local line, left = chosen.lines[at], limit - (#chosen.ids - begun)
    if left < 1 or chosen.visits >= Choose.VISITS or chosen.stale > Choose.STALE + wish.limit then
      for place = #chosen.lines, at, -1 do
        chosen.lines[place] = nil
      end
      break
    end
    local before = #chosen.ids
    read(chosen, line, math.ceil(left / (#chosen.lines - at + 1)), wish)
    if #chosen.ids == before then
      chosen.visits = chosen.visits + 1
    end
  end
  for at = first, #chosen.lines do
    local left = limit - (#chosen.ids - begun)
    if left < 1 then
      break
    elseif chosen.lines[at].has_more and #chosen.lines[at].ids > 0 then
      read(chosen, chosen.lines[at], left, wish)
    end
  end
end

local function look_at_level(chosen, level, priority, limit, wish)
  local key, offset = Lines.turns_key(level, wish.jobtype), 0
  expect_kind(key, 'turns')
  while offset and #chosen.ids < limit and chosen.visits < Choose.VISITS and not chosen.is_short do
    local count = math.min(Choose.LINES, limit - #chosen.ids)
    local rows = redis.call('ZRANGE', key, offset, offset + count, 'WITHSCORES')  -- one more: then there are others
    chosen.has_others = chosen.has_others or #rows > 2 or offset > 0
    if #rows == 0 and offset == 0 then
      chosen.gone_levels[#chosen.gone_levels + 1] = level
    end
    offset = #rows > 2 * count and offset + count or nil
    rows[2 * count + 1], rows[2 * count + 2] = nil, nil
    look_at_lines(chosen, level, priority, rows, limit - #chosen.ids, wish)
  end
end

function Choose.choose(wish)
  local chosen = {ids = {}, of = {}, lines = {}, gone_levels = {}, alone = false, is_short = false, visits = 0, stale = 0, has_others = false}
  Limits.read_rules()
  local following = Ages.walk(K.levels .. wish.jobtype, wish.least, wish.most, wish.period_ms, wish.wanted)
  for _ = 1, Choose.LEVELS do
    local level, priority, rank = following()
    if not level or rank > wish.bound then
      return chosen
    end
    local _, mark = Lines.split(level)
    if mark == ':' then
      look_at_level(chosen, level, priority, wish.limit, wish)
    elseif wish.may and #chosen.ids == 0 then
      look_at_level(chosen, level, priority, 1, wish)
      chosen.alone = #chosen.ids > 0
    end
    if chosen.alone or #chosen.ids >= wish.limit then
      return chosen
    elseif chosen.visits >= Choose.VISITS or chosen.is_short then
      break
    end
  end
  chosen.is_short = true
  return chosen
end

-- ------------------------------------------------------------ when some of them were given

-- Takes out of its line what was given. Whether nothing is left of it: then its caller does.
local function trim(line, given, is_whole)
  local number = is_whole and line.read or line.ends and line.ends[given] or not line.ends and given or 0
  local is_gone = is_whole and not line.has_more
  if not is_gone and number > 0 then
    redis.call('LTRIM', line.key, number, -1)
  end
  if number > #line.taken then
    Hints.met(line.priority, line.queue, number - #line.taken)
  end
  return is_gone
end

local function is_used_up(line)
  for place = 1, #line.allowed, 2 do
    if not Limits.has(line.allowed[place], line.allowed[place + 1]) then
      return true
    end
  end
  return false
end

-- Parks those of the lines that nothing more may start of. Buckets are asked anew, for they have spent since.
local function park(lines, now_us)
  local fresh, its = {}, {}
  for _, line in ipairs(lines) do
    for _, item in ipairs(Limits.items(line.queue)) do
      if not fresh[item.bucket] then
        call.bucket_states[item.bucket], fresh[item.bucket] = nil, true
      end
    end
    local most, bucket = Limits.allows(line.queue, now_us)
    if most < 1 then
      its[bucket] = its[bucket] or {}
      table.insert(its[bucket], line)
    end
  end
  for bucket, parked in pairs(its) do
    Parked.park(bucket, parked, now_us)
  end
end

-- Which of those whose rows were read wait where their hints say: by place. What is not one of them had a hint that was stale, or a second one, or no row.
-- `changed`: of each its row of `generation`, or false: without one it waits in one line as long as it waits.
function Choose.verify(chosen, rows, changed)
  local ids, waits, seen = {unpack(chosen.ids, 1, #rows)}, {}, {}
  local elsewhere = Hints.elsewhere(ids)
  local function is_its(line, row)
    local queue, priority = Move.header(row)
    return not queue or queue == line.queue and priority == tonumber(line.priority)  -- whose row cannot be read is given, and so found
  end
  for at = 1, #rows do
    local id, row = ids[at], rows[at]
    waits[at] = row and not elsewhere[id] and not seen[id] and (not changed[at] or is_its(chosen.of[at], row)) or false
    seen[id] = seen[id] or waits[at]
  end
  return waits
end

function Choose.settle(chosen, number, waits, fence, wish)
  local are_all, gone, stopped, noted = number == #chosen.ids, {}, {}, nil
  for at = 1, number do
    local line = chosen.of[at]
    line.given = line.given + 1
    line.taken[#line.taken + 1] = waits[at] and chosen.ids[at] or nil
  end
  for _, line in ipairs(chosen.lines) do
    local given, is_served = line.given, #line.taken > 0
    if line.priority ~= noted and (line.read > 0 or not line.has_more) then
      noted = line.priority
      Lines.note_head(wish.jobtype, noted)
    end
    if trim(line, given, are_all or given > 0 and given == #line.ids) then
      gone[#gone + 1] = line.key
      Lines.hide(line.level, line.queue, wish.jobtype)
    elseif are_all and is_used_up(line) then
      stopped[#stopped + 1] = line
      line.turn = is_served and Lines.next_turn() or line.turn
    elseif is_served and chosen.has_others then
      Lines.show(line.level, line.queue, true, wish.jobtype)
    end
    if is_served and line.allowed ~= UNLIMITED then
      Spend.spend(line.queue, line.allowed, line.taken)
    end
  end
  for _, level in ipairs(chosen.gone_levels) do  -- somebody deleted its turns
    redis.call('ZREM', K.levels .. wish.jobtype, level)
  end
  for at = 1, #gone, 1000 do
    redis.call('UNLINK', unpack(gone, at, math.min(at + 999, #gone)))
  end
  Spend.write_spent(fence, wish.now_us)
  park(stopped, wish.now_us)
end
