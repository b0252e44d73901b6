-- Where jobs wait: in lines.
--
-- A *queue* is what runs or waits together: spelled like its jobtype where no constraint limits its jobs, else *keyed* (limits.lua). A *level* is
-- "<since><mark><priority>". Where jobs age `since` is when the period began in which they became ready (ms), else "-"; the mark is ":", or "!" of
-- suspects (deaths.lua), which so hide nobody. A *line* is "<level>:<queue>".
--
--     line:<line>              list  ids, the next one first: hints only. Where a job stands the sets say; what waits has a hint in its line
--     turns:<level>:<jobtype>  zset  queue → its turn: of each line of that level, unless it is parked (parked.lua)
--     levels:<jobtype>         zset  level → priority: those that have turns
--     heads:<tenant>           zset  "<level>:<id>:<jobtype>" → priority: of each jobtype and priority the first job of the first line of the first level
--     stale                    hash  "<priority>:<queue>" → hints at most that were left in its lines by jobs that do not wait there any more (hints.lua)
--
-- A hint that is near to either end of its line goes with the job; else it is counted in `stale`, and whoever takes from such a line looks at each job.
-- What is written of turns and heads is noted, and written at the end of the call.
-- Gives is_keyed(queue); type_of(queue) → jobtype; heads_key(jobtype); is_marked(priority, queue): it may have stale hints; split(level) → since, mark, priority;
-- split_line(line) → level, queue; turns_key(level, jobtype); first_of(level, jobtype) → id or nil; expect_type(jobtype), expect_turns(queue), expect_line(queue, priority, since): by name, before the first write;
-- push(queue, priority, ids, since), give_back(queue, priority, id, since): to its front; drop(queue, priority, id): a job stops waiting, and no claim took it; is_near(level, queue, id), drop_near(level, queue, id) → whether its hint is, or was, near to an end of that line;
-- note_head(jobtype, priority): before its lines or turns change; show(level, queue, turn, jobtype): it has that turn, true: a new one, "first": one before all others; hide(level, queue, jobtype): it has none;
-- forget(level, queue): its last hint went; next_turn() → one behind all others; chunked(words, command, key, how): as many calls as it takes. lines_of(queue, priority) → levels of lines that it may have, LEVELS of each index; whether these are all.
Lines.NEAR = 500  -- hints at either end of a line among which one is looked for
Lines.LEVELS = 100  -- of one priority, looked at for a hint

function Lines.is_keyed(queue) return queue:find('\30', 1, true) ~= nil end
function Lines.type_of(queue)
  local at = queue:find('\30', 1, true)
  return at and queue:sub(1, at - 1) or queue
end
function Lines.heads_key(jobtype)
  local at = jobtype:find('\31', 1, true)
  return K.heads .. (at and jobtype:sub(1, at) or '')
end
function Lines.turns_key(level, jobtype) return K.turns .. level .. ':' .. jobtype end
function Lines.split(level) return level:match('^([^:!]+)([:!])(.+)$') end
function Lines.split_line(line) return line:match('^([^:!]+[:!][^:]+):(.*)$') end

starts.whole_priorities = empty  -- as they were given → as the server writes them
local function whole(priority)
  local text = call.whole_priorities[priority]
  if not text then
    text = string.format('%.0f', tonumber(priority))
    call.whole_priorities[priority] = text
  end
  return text
end
local function level_of(priority, since, mark) return since .. mark .. whole(priority) end
local function mark_of(id) return call.has_deaths and Deaths.is_suspect(id) and '!' or ':' end

function starts.has_stale() return expect_rare('stale', 'jobs', 'about', 'later', 'ended', 'dead') end
function Lines.is_marked(priority, queue)
  return call.has_stale and redis.call('HEXISTS', K.stale, whole(priority) .. ':' .. queue) == 1
end

-- As many calls as it takes: `unpack` ends a function at some 8,000 words, after what it had written.
function Lines.chunked(words, command, key, how)
  for at = 1, #words, 1000 do
    local last = math.min(at + 999, #words)
    if how then
      redis.call(command, key, how, unpack(words, at, last))
    else
      redis.call(command, key, unpack(words, at, last))
    end
  end
end

function Lines.expect_type(jobtype)
  expect_kind(K.levels .. jobtype, 'levels')
  expect_kind(Lines.heads_key(jobtype), 'heads')
  expect('life', 'deaths')
end

-- The same of what jobs that come back to any level may write, for the first FEW of them.
starts.expected_turns = empty
function Lines.expect_turns(queue)
  local FEW, jobtype = 8, Lines.type_of(queue)
  if not call.expected_turns[jobtype] then
    call.expected_turns[jobtype] = true
    Lines.expect_type(jobtype)
    for _, level in ipairs(redis.call('ZRANGE', K.levels .. jobtype, 0, FEW - 1)) do
      expect_kind(Lines.turns_key(level, jobtype), 'turns')
    end
  end
end

function Lines.expect_line(queue, priority, since)
  local level, jobtype = level_of(priority, since, ':'), Lines.type_of(queue)
  Lines.expect_type(jobtype)
  expect_kind(Lines.turns_key(level, jobtype), 'turns')
  expect_kind(K.line .. level .. ':' .. queue, 'line')
end

-- ------------------------------------------------------------ turns and heads, written at the end

function Lines.first_of(level, jobtype)
  local queue = redis.pcall('ZRANGE', Lines.turns_key(level, jobtype), 0, 0)[1]
  local id = queue and redis.pcall('LINDEX', K.line .. level .. ':' .. queue, 0)
  return type(id) == 'string' and id or nil  -- whoever claims from what somebody else wrote says so
end

-- The row of `heads` of one jobtype and priority, as it is to be.
local function head_of(jobtype, priority)
  local level = redis.call('ZRANGE', K.levels .. jobtype, priority, priority, 'BYSCORE', 'LIMIT', 0, 1)[1]
  local id = level and Lines.first_of(level, jobtype)
  return id and level .. ':' .. id .. ':' .. jobtype
end

-- priority:jobtype → {jobtype, priority, row}
function Lines.note_head(jobtype, priority)
  priority, call.heads_before = whole(priority), call.heads_before or {}
  local name = priority .. ':' .. jobtype
  if not call.heads_before[name] then
    call.heads_before[name] = {jobtype = jobtype, priority = priority, row = head_of(jobtype, priority)}
  end
end

-- Of a level: {level, jobtype, order: queues, turns: of each its turn, true for a new one, false for none}.
local function turns_of(level, jobtype)
  local name = level .. ':' .. jobtype
  call.turns = call.turns or {}
  local its = call.turns[name]
  if not its then
    its = {level = level, jobtype = jobtype, order = {}, turns = {}}
    call.turns[name] = its
    Lines.note_head(jobtype, (select(3, Lines.split(level))))
  end
  return its
end

function Lines.show(level, queue, turn, jobtype)
  local its = turns_of(level, jobtype or Lines.type_of(queue))
  if its.turns[queue] == nil then
    its.order[#its.order + 1] = queue
  end
  its.turns[queue] = turn
end

function Lines.hide(level, queue, jobtype) Lines.show(level, queue, false, jobtype) end

-- What is given a turn goes behind all that have one: turns are numbers of one sequence. "first": before all of its level.
local FIRST_TURN = 2000000000000  -- as many digits has each: half of so many may be put before it
local function next_turns(count)
  local last = redis.pcall('HINCRBY', K.life, 'turn', count)
  if type(last) ~= 'number' then  -- somebody wrote something else there
    last = count
    redis.call('HSET', K.life, 'turn', digits(count))
  end
  return FIRST_TURN + last - count
end
function Lines.next_turn() return digits(next_turns(1) + 1) end

local function write_turns(its)
  local key, rows, gone, new, before = Lines.turns_key(its.level, its.jobtype), {}, {}, {}, nil
  for _, queue in ipairs(its.order) do
    local turn = its.turns[queue]
    if turn == 'first' then
      before = (before or tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) or next_turns(1)) - 1
      turn = before
    end
    if turn == true then
      new[#new + 1] = queue
    elseif turn then
      rows[#rows + 1], rows[#rows + 2] = turn, queue
    else
      gone[#gone + 1] = queue
    end
  end
  local turn = #new > 0 and next_turns(#new)
  for at, queue in ipairs(new) do
    rows[#rows + 1], rows[#rows + 2] = turn + at, queue
  end
  Lines.chunked(gone, 'ZREM', key)
  Lines.chunked(rows, 'ZADD', key)
  local _, _, priority = Lines.split(its.level)
  if #rows > 0 then
    redis.call('ZADD', K.levels .. its.jobtype, priority, its.level)
  elseif #gone > 0 and redis.call('EXISTS', key) == 0 then
    redis.call('ZREM', K.levels .. its.jobtype, its.level)
  end
end

finish[#finish + 1] = function()
  for _, its in pairs(call.turns or {}) do
    write_turns(its)
  end
  for _, its in pairs(call.heads_before or {}) do
    local row, key = head_of(its.jobtype, its.priority), Lines.heads_key(its.jobtype)
    if row ~= its.row and its.row then
      redis.pcall('ZREM', key, its.row)  -- a claim that is not offered a jobtype by heads is offered it by name
    end
    if row and row ~= its.row then
      redis.pcall('ZADD', key, its.priority, row)
    end
  end
end

-- ------------------------------------------------------------ coming and going

-- Of a line that gets hints. `is_new`: nothing waited in it, so it was not parked. Whoever has hints has a turn, also after a call that was cut short.
local function see_to_turn(queue, level, is_new, turn)
  local jobtype = Lines.type_of(queue)
  if is_new or not redis.call('ZSCORE', Lines.turns_key(level, jobtype), queue) and not Parked.has(level .. ':' .. queue) then
    Lines.show(level, queue, turn, jobtype)
  end
end

local function put(queue, level, ids)
  expect_kind(Lines.turns_key(level, Lines.type_of(queue)), 'turns')
  see_to_turn(queue, level, redis.call('RPUSH', K.line .. level .. ':' .. queue, unpack(ids)) == #ids, true)
end

function Lines.push(queue, priority, ids, since)
  if not call.has_deaths then
    put(queue, level_of(priority, since, ':'), ids)
    return
  end
  local marked = {[':'] = {}, ['!'] = {}}
  for _, id in ipairs(ids) do
    local its = marked[mark_of(id)]
    its[#its + 1] = id
  end
  for _, mark in ipairs({':', '!'}) do
    if #marked[mark] > 0 then
      put(queue, level_of(priority, since, mark), marked[mark])
    end
  end
end

function Lines.give_back(queue, priority, id, since)
  local level = level_of(priority, since, mark_of(id))
  expect_kind(Lines.turns_key(level, Lines.type_of(queue)), 'turns')
  Lines.note_head(Lines.type_of(queue), priority)
  see_to_turn(queue, level, redis.call('LPUSH', K.line .. level .. ':' .. queue, id) == 1, 'first')
end

function Lines.forget(level, queue)
  if not Parked.forget(level .. ':' .. queue) then
    Lines.hide(level, queue)
  end
end

-- Where a hint of that job is near to an end of the line, and from which end that is, or nil. Who wrote something else there has none.
function Lines.is_near(level, queue, id)
  local key = K.line .. level .. ':' .. queue
  local at, from = redis.pcall('LPOS', key, id, 'MAXLEN', Lines.NEAR), 1
  if not at then
    at, from = redis.pcall('LPOS', key, id, 'RANK', -1, 'MAXLEN', Lines.NEAR), -1
  end
  if type(at) == 'number' then
    return at, from
  end
  return nil
end

-- Whether such a hint was there, and went.
function Lines.drop_near(level, queue, id)
  local key, at, from = K.line .. level .. ':' .. queue, Lines.is_near(level, queue, id)
  if not at then
    return false
  end
  if at == 0 then
    Lines.note_head(Lines.type_of(queue), (select(3, Lines.split(level))))
  end
  redis.call('LREM', key, from, id)
  if at == 0 and redis.call('EXISTS', key) == 0 then
    Lines.forget(level, queue)
  end
  return true
end

-- Whether there may be levels of several ages.
function starts.has_ages() return redis.call('HEXISTS', K.life, 'aged') == 1 end

function Lines.lines_of(queue, priority)
  local levels, are_all = {level_of(priority, '-', ':'), level_of(priority, '-', '!')}, true
  local known = {[levels[1]] = true, [levels[2]] = true}
  local function read(key, level_in)
    local rows = call.has_ages and redis.call('ZRANGE', key, priority, priority, 'BYSCORE', 'LIMIT', 0, Lines.LEVELS) or {}
    are_all = are_all and #rows < Lines.LEVELS
    for _, row in ipairs(rows) do
      local level = level_in(row)
      if level and not known[level] then
        known[level], levels[#levels + 1] = true, level
      end
    end
  end
  read(K.levels .. Lines.type_of(queue), function(row) return row end)
  for _, item in ipairs(call.has_limits and Limits.items(queue) or {}) do  -- a level of which all lines are parked is in no index
    read(K.aside .. item.bucket, function(row)
      local level, its = Lines.split_line(Parked.line_of(row))
      return its == queue and level or nil
    end)
  end
  return levels, are_all
end

function Lines.drop(queue, priority, id)
  if Lines.drop_near(level_of(priority, Ages.since(id, 0), mark_of(id)), queue, id) then
    return
  end
  for _, level in ipairs(Lines.lines_of(queue, priority)) do
    if Lines.drop_near(level, queue, id) then
      return
    end
  end
  Hints.mark(priority, queue)
end
