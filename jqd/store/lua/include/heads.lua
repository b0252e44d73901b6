-- Which job is next of each jobtype and priority, in one order over all of them. Needs keys, fail, order.
--
--     heads    zset  "<id>:<jobtype>" → priority: one row for each priority that jobs of a type wait under, of the first of them
--
-- So the best jobs of any range of priorities are found, whatever waits outside it. pages.lua says where jobs wait.
-- Gives first_between(jobtype, priority_min, priority_max) → id, priority or nil; has_pages; paged_of(jobtype) → ids in its pages; backlog_key, page_key, is_kind; head_of(jobtype, priority) → id or nil;
-- may_lead(jobtype, priority, id); mend_head(jobtype, priority, known): after jobs came or left that were not followed, `known` being what the row said;
-- add_head(jobtype, priority, known, id): after that job came; head_row(id, jobtype).
local has_pages = redis.call('EXISTS', K.paged) == 1
if has_pages then
  expect('paged')
end

local function backlog_key(jobtype) return K.backlog .. jobtype end
local function page_key(first, jobtype) return K.page .. first .. ':' .. jobtype end
local function is_kind(key, kind) return redis.call('TYPE', key)['ok'] == kind end

local known_paged = {}
local function paged_of(jobtype)
  if not has_pages then
    return 0
  elseif not known_paged[jobtype] then
    local row = redis.call('HGET', K.paged, jobtype)
    known_paged[jobtype] = row and math.max(1, tonumber(row) or 1) or 0
  end
  return known_paged[jobtype]
end

local checked = {}  -- jobtypes whose backlog is known to be one, by expect_ready

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

-- Under its own priority only: the job may wait under another priority by now, and be the first there.
local function drop_head(jobtype, priority, id)
  local row = head_row(id, jobtype)
  if tonumber(redis.call('ZSCORE', K.heads, row) or nil) == tonumber(priority) then
    redis.call('ZREM', K.heads, row)
  end
end

-- Whether that job, which is about to come, may be the first of its priority: a cheap question, for nearly no job is. Also
-- which job is the first now, and which is the first of those in `ready`.
local function may_lead(jobtype, priority, id)
  local here = redis.call('ZRANGE', ready_key(jobtype), priority, priority, 'BYSCORE', 'LIMIT', 0, 1)[1]
  if here and not before(id, here) then
    return false, here, here
  end
  return true, head_of(jobtype, priority), here
end

local function add_head(jobtype, priority, known, id)
  if known and not before(id, known) then
    return
  elseif known then
    drop_head(jobtype, priority, known)
  end
  redis.call('ZADD', K.heads, priority, head_row(id, jobtype))
end

local function mend_head(jobtype, priority, known)
  local id = head_of(jobtype, priority)
  if known and known ~= id then
    drop_head(jobtype, priority, known)
  end
  if id then
    redis.call('ZADD', K.heads, priority, head_row(id, jobtype))
  end
end
