-- Who has a job in flight: one short record in the hash `about` is the truth. The *holder* is a daemon's sysid, or `*`
-- for all workers (leases.lua). `held:<sysid>` lists the jobs of a holder, and changes together with the records.
--
--     "f<fence> o<sysid> g<generation> ? q<queue>"
--
--     o  the holder
--     g  which content the attempt is of; missing for the first one, or for the one in the row
--     ?  the job itself has not come yet
--     q  its queue, if a `busy:` counts it (limits.lua); it ends the record, as it may have any bytes
--
-- All jobs of a claim share one text. Field "?" of the hash: how many jobs have not come yet, padded with blanks: with
-- a value above 64 bytes the server keeps the hash as a table. In a list each look-up would read half of all records.
-- `call.freed`: id and queue, flat, of jobs that have no holder any more.
About.WORKERS = '*'
starts.records, starts.taken, starts.new_records = empty, empty, empty
starts.moved, starts.left, starts.has_left = empty, empty, empty
starts.freed = empty

-- How many jobs are in flight and have not come yet.
function starts.early() return tonumber(redis.call('HGET', K.about, '?') or nil) or 0 end

-- Returns all holders.
function About.holders()
  local sysids = redis.call('HKEYS', K.members)
  if redis.call('EXISTS', held_key(About.WORKERS)) == 1 then
    sysids[#sysids + 1] = About.WORKERS
  end
  return sysids
end

local function read(text)
  local hold = call.records[text]
  if hold == nil then
    local at, queue = (' ' .. text):match('() q(.*)$')
    local fence, sysid, rest = text:sub(1, at and at - 1):match('^f(%d+) o(%S+)(.*)$')
    hold = fence and {
      fence = tonumber(fence), sysid = sysid, generation = rest:match(' g(%d+)'),
      is_early = rest:find(' ?', 1, true) ~= nil, queue = queue, text = text,
    } or false
    call.records[text] = hold
  end
  return hold
end

-- Makes a hold, which is a record's fields: fence, sysid, generation (text or nil), is_early, queue, text.
function About.of(fence, sysid, generation, is_early, queue)
  return read('f' .. digits(fence) .. ' o' .. sysid .. (generation and ' g' .. generation or '')
    .. (is_early and ' ?' or '') .. (queue and ' q' .. queue or ''))
end

-- Returns which of two holds has the job: that of the later claim; of one claim that of the worker, which got the job
-- from the daemon. What is left just makes the order whole.
function About.join(one, other)
  if not (one and other) or one.text == other.text then
    return one or other
  elseif one.fence ~= other.fence then
    return one.fence > other.fence and one or other
  elseif (one.sysid == About.WORKERS) ~= (other.sysid == About.WORKERS) then
    return one.sysid == About.WORKERS and one or other
  end
  local its, others = tonumber(one.generation or 0), tonumber(other.generation or 0)
  local is_first = its > others or its == others and Order.before(other.text, one.text)
  return is_first and one or other
end

-- Reads holds. Returns id → hold, and which of `ids` were given twice.
function About.look(ids)
  local found, twice = {}, {}
  for at, text in ipairs(#ids > 0 and redis.call('HMGET', K.about, unpack(ids)) or {}) do
    local id = ids[at]
    if text and found[id] then
      twice[id] = true
    end
    found[id] = text and (call.records[text] or read(text)) or nil
  end
  return found, twice
end

-- Returns the hold of a job, or nil.
function About.hold(id) return not call.has_left[id] and About.look({id})[id] or nil end

-- Returns the claims among the arguments (id, fence, perhaps more) that hold, for this holder: {id, hold, place of the
-- id}. To be called before the first write.
function About.held_so(sysid, first, fields)
  local ids, found = {}, {}
  for at = first, #ARGV, fields do
    ids[#ids + 1] = ARGV[at]
  end
  local holds = About.look(ids)
  for at = first, #ARGV, fields do
    local id, fence = ARGV[at], tonumber(ARGV[at + 1])
    local hold = holds[id]
    if hold and hold.sysid == sysid and hold.fence == fence then
      found[#found + 1], holds[id] = {id = id, hold = hold, at = at}, nil
    end
  end
  return found
end

local function spelled_early() return string.format('%-65d', call.early) end

local function count_early(more)
  if more ~= 0 then
    call.early = call.early + more
    redis.call('HSET', K.about, '?', spelled_early())
  end
end

-- Gives jobs, in any number of lists, to a holder.
function About.claim(sysid, fence, ...)
  local claim, listed, records, filled = digits(fence), {}, {'?', spelled_early()}, 0
  local text = 'f' .. claim .. ' o' .. sysid
  call.claimed = text
  for _, ids in ipairs({...}) do
    for _, id in ipairs(ids) do
      listed[filled + 1], listed[filled + 2], records[filled + 3], records[filled + 4] = claim, id, id, text
      filled = filled + 2
    end
  end
  redis.call('HSET', K.about, unpack(records))
  redis.call('ZADD', held_key(sysid), unpack(listed))
end

-- Returns the text for jobs of this call's claim that are counted in a queue.
function About.counts(queue) return call.claimed .. ' q' .. queue end

local function list_of(lists, sysid)
  local list = lists[sysid] or {}
  lists[sysid] = list
  return list
end

-- Gives a job to that hold; `before` is the hold that had it, or nil.
function About.take(id, hold, before)
  if call.has_left[id] then
    About.write()
  end
  local taken, records = list_of(call.taken, hold.sysid), call.new_records
  taken[#taken + 1], taken[#taken + 2] = digits(hold.fence), id
  records[#records + 1], records[#records + 2] = id, hold.text
  if before and before.sysid ~= hold.sysid then
    local moved = list_of(call.moved, before.sysid)
    moved[#moved + 1] = id
  end
  count_early((hold.is_early and 1 or 0) - (before and before.is_early and 1 or 0))
end

-- A job comes that has a holder already: its hold now names its queue.
function About.come(id, hold, queue)
  About.take(id, About.of(hold.fence, hold.sysid, hold.generation, nil, queue), hold)
  About.write()
end

-- Takes a job from that hold.
function About.leave(id, hold)
  local ids = list_of(call.left, hold.sysid)
  ids[#ids + 1], call.has_left[id] = id, true
  if hold.is_early then
    count_early(-1)
  elseif hold.queue then
    call.freed[#call.freed + 1], call.freed[#call.freed + 2] = id, hold.queue
  end
end

-- Writes which jobs were given.
function About.write_taken()
  for sysid, rows in pairs(call.taken) do
    redis.call('ZADD', held_key(sysid), unpack(rows))
  end
  if #call.new_records > 0 then
    redis.call('HSET', K.about, unpack(call.new_records))
  end
  for sysid, ids in pairs(call.moved) do
    redis.call('ZREM', held_key(sysid), unpack(ids))
  end
  call.taken, call.new_records, call.moved = {}, {}, {}
end

-- Writes which jobs were given, then which were taken. These are then in call.freed.
function About.write()
  Index.write()
  About.write_taken()
  for sysid, ids in pairs(call.left) do
    redis.call('ZREM', held_key(sysid), unpack(ids))
    redis.call('HDEL', K.about, unpack(ids))
  end
  call.left, call.has_left = {}, {}
end
