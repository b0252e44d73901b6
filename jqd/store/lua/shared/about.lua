-- What is known of a job beside its row: a short record in the hash `about`, which is the truth of who has the job in
-- flight. `held:<sysid>` lists each hand for whoever looks through it, and changes with the record.
--
--     "f<fence> o<sysid> g<generation> ? q<queue>"
--
-- Each field begins with its letter; what is not there is not known. All jobs of a claim share one text. `o`: whose
-- hand, `*` that of all workers, however many they are (leases.lua); `g`: of which content the attempt is, unless of
-- the first, or of the one that is here; `?`: its job has not come yet; `q`, up to the end, for it may have any bytes:
-- its queue, where a `busy:` counts it (limits.lua). Field "?" of the hash: how many of that kind there are, and
-- blanks: for a value of more than 64 bytes the server keeps the hash as a table. As a list, which it is up to 512
-- fields, each look at a job goes through half of those in flight.
-- `call.freed` has, flat, id and queue of jobs that are in no hand any more.
About.WORKERS = '*'
starts.records, starts.taken, starts.told = empty, empty, empty
starts.moved, starts.left, starts.has_left = empty, empty, empty
starts.freed = empty

-- How many jobs are in a hand and have not come yet.
function starts.early() return tonumber(redis.call('HGET', K.about, '?') or nil) or 0 end

-- The sysids that hold jobs, with `*` when workers hold any.
function About.hands()
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

-- Makes a hold: fence, sysid, generation (text or nil), is_early, queue, text.
function About.of(fence, sysid, generation, is_early, queue)
  return read('f' .. digits(fence) .. ' o' .. sysid .. (generation and ' g' .. generation or '')
    .. (is_early and ' ?' or '') .. (queue and ' q' .. queue or ''))
end

-- Which of two holds of a job has it. That of the later claim; of one claim that of the worker, to whom it was handed
-- over. All else is told by one alone, and makes the order whole.
function About.join(one, other)
  if not (one and other) or one.text == other.text then
    return one or other
  elseif one.fence ~= other.fence then
    return one.fence > other.fence and one or other
  elseif (one.sysid == About.WORKERS) ~= (other.sysid == About.WORKERS) then
    return one.sysid == About.WORKERS and one or other
  end
  local its, others = tonumber(one.generation or 0), tonumber(other.generation or 0)
  return (its > others or its == others and Order.before(other.text, one.text)) and one or other
end

-- Reads holds: id → hold of those that are held, and those that are met twice in `ids`.
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

-- The hold of one job, or nil.
function About.hold(id) return not call.has_left[id] and About.look({id})[id] or nil end

-- Of claims among the arguments, "id fence" and perhaps more each, those that this hand has so: {id, hold, place of the
-- id}. Before the first write.
function About.held_so(sysid, first, fields)
  expect_rows(first, fields, 'claims')
  local ids, found = {}, {}
  for at = first, #ARGV, fields do
    ids[#ids + 1] = ARGV[at]
  end
  local holds = About.look(ids)
  for at = first, #ARGV, fields do
    local id, fence = ARGV[at], number(ARGV[at + 1], 'fence')
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

-- That hand takes jobs: any number of lists of ids.
function About.claim(sysid, fence, ...)
  local claim, listed, told, filled = digits(fence), {}, {'?', spelled_early()}, 0
  local text = 'f' .. claim .. ' o' .. sysid
  call.claimed = text
  for _, ids in ipairs({...}) do
    for _, id in ipairs(ids) do
      listed[filled + 1], listed[filled + 2], told[filled + 3], told[filled + 4] = claim, id, id, text
      filled = filled + 2
    end
  end
  redis.call('HSET', K.about, unpack(told))
  redis.call('ZADD', held_key(sysid), unpack(listed))
end

-- The text of what this call has claimed, with a queue.
function About.counts(queue) return call.claimed .. ' q' .. queue end

local function list_of(lists, sysid)
  local list = lists[sysid] or {}
  lists[sysid] = list
  return list
end

-- A job comes to that hold; `before`, if not nil, had it so far.
function About.take(id, hold, before)
  if call.has_left[id] then
    About.write()
  end
  local taken, told = list_of(call.taken, hold.sysid), call.told
  taken[#taken + 1], taken[#taken + 2] = digits(hold.fence), id
  told[#told + 1], told[#told + 2] = id, hold.text
  if before and before.sysid ~= hold.sysid then
    local moved = list_of(call.moved, before.sysid)
    moved[#moved + 1] = id
  end
  count_early((hold.is_early and 1 or 0) - (before and before.is_early and 1 or 0))
end

-- A job that a hand has already comes; from now on that hold names its queue.
function About.come(id, hold, queue)
  About.take(id, About.of(hold.fence, hold.sysid, hold.generation, nil, queue), hold)
  About.write()
end

-- A job leaves that hold.
function About.leave(id, hold)
  local ids = list_of(call.left, hold.sysid)
  ids[#ids + 1], call.has_left[id] = id, true
  if hold.is_early then
    count_early(-1)
  elseif hold.queue then
    call.freed[#call.freed + 1], call.freed[#call.freed + 2] = id, hold.queue
  end
end

-- Writes what was taken.
function About.write_taken()
  for sysid, rows in pairs(call.taken) do
    redis.call('ZADD', held_key(sysid), unpack(rows))
  end
  if #call.told > 0 then
    redis.call('HSET', K.about, unpack(call.told))
  end
  for sysid, ids in pairs(call.moved) do
    redis.call('ZREM', held_key(sysid), unpack(ids))
  end
  call.taken, call.told, call.moved = {}, {}, {}
end

-- Writes all: what was taken, then what left; and from then on call.freed has, flat, id and queue of the jobs that are
-- in no hand any more.
function About.write()
  Heads.write()
  About.write_taken()
  for sysid, ids in pairs(call.left) do
    redis.call('ZREM', held_key(sysid), unpack(ids))
    redis.call('HDEL', K.about, unpack(ids))
  end
  call.left, call.has_left = {}, {}
end
