-- What queues are, what is known of them before any is looked at, and how a range of their jobs is read. Needs keys, fail, order.
-- A *queue* is what runs or waits together. That of jobs that no constraint limits is spelled like their jobtype; the others are *keyed*: `limits.lua`
-- says how they are spelled. Where this says jobtype, any queue may stand.
-- Gives reading.as(name, command, key, ...), reading.between(name, key, priority_min, priority_max, offset, count) → flat; first_between(jobtype, priority_min, priority_max) → id,
-- priority or nil; has_pages; paged_of(jobtype) → ids in its pages; backlog_key, page_key, is_kind; head_of(jobtype, priority) → id or nil; head_row(id, jobtype);
-- may_lead(jobtype, priority, id). keyed.is(queue); keyed.type_of(queue) → jobtype; keyed.all_of(queue) → key of the index of its tenant; keyed.heads_key(queue); keyed.loose_key(queue);
-- keyed.aside_key(bucket); keyed.some(): whether there is or was any in this life; keyed.learn_paged(queues): the number of ids in pages of many at once.
local has_pages, keyed = false, {known = false}
do  -- asked for at once: nearly always there is neither
  local found = has_rare() and redis.call('EXISTS', K.paged, K.keyed) or 0
  if found > 0 then
    has_pages = expect_kind(K.paged, 'paged') ~= 'none'
    keyed.known = found == 2 or not has_pages
  end
  if keyed.known then
    expect('keyed', 'parked', 'limits', 'due', 'again', 'limited', 'life', 'early')
  end
end

local function backlog_key(jobtype) return K.backlog .. jobtype end
local function page_key(first, jobtype) return K.page .. first .. ':' .. jobtype end
local function is_kind(key, kind) return redis.call('TYPE', key)['ok'] == kind end

keyed.in_pages = {}  -- queue → number of ids, where it was asked for
local function paged_of(jobtype)
  if not has_pages then
    return 0
  elseif not keyed.in_pages[jobtype] then
    local row = redis.call('HGET', K.paged, jobtype)
    keyed.in_pages[jobtype] = row and math.max(1, tonumber(row) or 1) or 0
  end
  return keyed.in_pages[jobtype]
end

-- Asks for many queues at once.
function keyed.learn_paged(queues)
  if has_pages and #queues > 0 then
    for at, row in ipairs(redis.call('HMGET', K.paged, unpack(queues))) do
      keyed.in_pages[queues[at]] = keyed.in_pages[queues[at]] or row and math.max(1, tonumber(row) or 1) or 0
    end
  end
end

local checked = {}  -- jobtypes whose backlog is known to be one, by expect_ready

-- To ask for the type of a key would be as much again as to read it.
local reading = {BEST = -2147483648, WORST = 2147483647}  -- of all priorities
function reading.as(name, ...)
  local answer = redis.pcall(...)
  if answer.err then
    fail('JQD_WRONG_TYPE', name)
  end
  return answer
end

-- So many members between two priorities with those, flat. All of them are found by their ranks, for half as much.
function reading.between(name, key, priority_min, priority_max, offset, count)
  if priority_min <= reading.BEST and priority_max >= reading.WORST then
    return reading.as(name, 'ZRANGE', key, offset, offset + count - 1, 'WITHSCORES')
  end
  return reading.as(name, 'ZRANGE', key, priority_min, priority_max, 'BYSCORE', 'LIMIT', offset, count, 'WITHSCORES')
end

-- The first of two places where a jobtype waits between two priorities: id and priority, or nil.
local function first_between(jobtype, priority_min, priority_max)
  local id, priority = unpack(redis.call('ZRANGE', ready_key(jobtype), priority_min, priority_max, 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES'))
  if paged_of(jobtype) > 0 and (checked[jobtype] or is_kind(backlog_key(jobtype), 'zset')) then
    local first, score = unpack(redis.call('ZRANGE', backlog_key(jobtype), priority_min, priority_max, 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES'))
    local page = first and page_key(first, jobtype)
    local head = page and is_kind(page, 'list') and redis.call('LINDEX', page, 0)
    if head and (not id or precedes(tonumber(score), head, tonumber(priority), id)) then
      return head, score
    end
  end
  return id, priority
end

local function head_of(jobtype, priority)
  return (first_between(jobtype, priority, priority))
end

local function head_row(id, jobtype) return id .. ':' .. jobtype end

-- Behind the jobtype of such a queue stands a character that is in no jobtype.
function keyed.is(queue) return queue:find('\30', 1, true) ~= nil end
function keyed.type_of(queue)
  local at = queue:find('\30', 1, true)
  return at and queue:sub(1, at - 1) or queue
end
function keyed.heads_key(queue) return K.queues .. keyed.type_of(queue) end
-- Where the rows of all jobtypes of its tenant are: however many rows others have, they hide none of these.
function keyed.all_of(queue)
  local at = queue:find('\31', 1, true)
  return at and K.queues .. queue:sub(1, at) or K.heads
end
function keyed.loose_key(queue) return K.loose .. keyed.type_of(queue) end
function keyed.aside_key(bucket) return K.aside .. bucket end

function keyed.some() return keyed.known end

function keyed.begin()
  if not keyed.known then
    redis.call('HSET', K.keyed, '', '1')  -- it stays: some may be in a hand
    keyed.known = true
  end
end

-- Whether that job, which is about to come, may be the first of its priority, or is it already: a cheap question, for nearly no job is. Also
-- which job is the first now, and which is the first of those in `ready`.
local function may_lead(jobtype, priority, id)
  local here = redis.call('ZRANGE', ready_key(jobtype), priority, priority, 'BYSCORE', 'LIMIT', 0, 1)[1]
  if here and before(here, id) then
    return false, here, here
  end
  return true, paged_of(jobtype) > 0 and head_of(jobtype, priority) or here, here
end
