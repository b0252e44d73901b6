-- Hints of lines that may be stale: their jobs do not wait there any more (lines.lua).
-- Gives mark(priority, queue): one more was left in its lines; count(priority, queue): that many at most;
-- elsewhere(ids) → id → true of those that do not wait; waiting(ids, priority, queue) → id → true of those that wait there; met(priority, queue, number): so many were taken out, or nil: of it nothing is left;
-- sweep(): looks at some of the lines of which half is stale: what waits goes to the end of its line, and the rest away.
Hints.SWEPT = 1000  -- hints of a line in one sweep
Hints.QUEUES = 3  -- looked at in one sweep

local function field_of(priority, queue) return string.format('%.0f', tonumber(priority)) .. ':' .. queue end

function Hints.mark(priority, queue)
  redis.call('HINCRBY', K.stale, field_of(priority, queue), 1)
  call.has_stale = true
end

function Hints.count(priority, queue)
  return tonumber(call.has_stale and redis.call('HGET', K.stale, field_of(priority, queue)) or nil) or 0
end

function Hints.met(priority, queue, number)
  if number > 0 and call.has_stale and redis.call('HINCRBY', K.stale, field_of(priority, queue), -number) <= 0 then
    redis.call('HDEL', K.stale, field_of(priority, queue))
  end
end

function Hints.elsewhere(ids)
  local found = {}
  if #ids == 0 then
    return found
  end
  local held, ended = redis.call('HMGET', K.about, unpack(ids)), redis.call('ZMSCORE', K.ended, unpack(ids))
  local dead, later = redis.call('ZMSCORE', K.dead, unpack(ids)), redis.call('ZMSCORE', K.later, unpack(ids))
  for at = 1, #ids do
    local is_held = held[at] and held[at]:sub(1, 1) == 'f'  -- else it is counted of an attempt that goes on, and no hold
    if is_held or ended[at] or dead[at] or later[at] then
      found[ids[at]] = true
    end
  end
  return found
end

function Hints.waiting(ids, priority, queue)
  local found, elsewhere, rows = {}, Hints.elsewhere(ids), #ids > 0 and redis.call('HMGET', K.jobs, unpack(ids)) or {}
  for at, id in ipairs(ids) do
    local its, its_priority = Move.header(rows[at] or '')
    if rows[at] and not elsewhere[id] and (not its or its == queue and its_priority == tonumber(priority)) then
      found[id] = true  -- one whose row cannot be read is given, and so found
    end
  end
  return found
end

local function sweep_line(level, queue, priority)
  local key = K.line .. level .. ':' .. queue
  local ids = redis.pcall('LRANGE', key, 0, Hints.SWEPT - 1)
  if ids.err or #ids == 0 then
    return
  end
  Lines.note_head(Lines.type_of(queue), priority)
  local waits, left = Hints.waiting(ids, priority, queue), {}
  for _, id in ipairs(ids) do
    if waits[id] then
      left[#left + 1], waits[id] = id, nil
    end
  end
  if #left > 0 then
    redis.call('RPUSH', key, unpack(left))
  end
  redis.call('LTRIM', key, #ids, -1)
  Hints.met(priority, queue, #ids - #left)
  if redis.call('EXISTS', key) == 0 then
    Lines.forget(level, queue)
  end
end

function Hints.sweep()
  for _, field in ipairs(call.has_stale and redis.call('HRANDFIELD', K.stale, Hints.QUEUES) or {}) do
    local priority, queue = field:match('^(%-?%d+):(.*)$')
    local size, levels, are_all = 0, Lines.lines_of(queue, priority)
    for _, level in ipairs(levels) do
      local its = redis.pcall('LLEN', K.line .. level .. ':' .. queue)
      size = size + (tonumber(its) or 0)
    end
    if size == 0 and are_all then
      redis.call('HDEL', K.stale, field)
    elseif 2 * Hints.count(priority, queue) >= size then
      for _, level in ipairs(levels) do
        sweep_line(level, queue, priority)
      end
      if size <= Hints.SWEPT and are_all then
        redis.call('HDEL', K.stale, field)
      end
    end
  end
end
