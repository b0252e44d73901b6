-- Queues: their names, their first jobs, and reading a range of them. The jobs of a queue run or wait together. The
-- queue of jobs without constraints has the name of their jobtype; all others are *keyed*, with names as in limits.lua.
-- A parameter `jobtype` takes any queue.
function starts.has_pages() return is_here('paged') end
function starts.has_keyed() return is_here('keyed') end

function Queues.backlog_key(jobtype) return K.backlog .. jobtype end
function Queues.page_key(first, jobtype) return K.page .. first .. ':' .. jobtype end

starts.in_pages = empty  -- queue → number of its ids in pages, for queues that were asked for

-- Returns how many ids a queue has in pages.
function Queues.paged_of(jobtype)
  if not call.has_pages then
    return 0
  elseif not call.in_pages[jobtype] then
    local row = redis.call('HGET', K.paged, jobtype)
    call.in_pages[jobtype] = row and math.max(1, tonumber(row) or 1) or 0
  end
  return call.in_pages[jobtype]
end

-- Asks that for all queues of some index rows, flat with priorities.
function Queues.learn_paged_of(rows)
  local queues = {}
  for at = 1, call.has_pages and #rows or 0, 2 do
    queues[#queues + 1] = rows[at]:match(':(.*)$')
  end
  Queues.learn_paged(queues)
end

-- Asks that for many queues at once.
function Queues.learn_paged(queues)
  if call.has_pages and #queues > 0 then
    for at, row in ipairs(redis.call('HMGET', K.paged, unpack(queues))) do
      call.in_pages[queues[at]] = call.in_pages[queues[at]] or row and math.max(1, tonumber(row) or 1) or 0
    end
  end
end

Queues.BEST, Queues.WORST = -2147483648, 2147483647  -- of all priorities

-- Returns up to `count` members between two priorities, flat with these. Ranks are half as costly, if all may come.
function Queues.read_between(key, priority_min, priority_max, offset, count)
  if priority_min <= Queues.BEST and priority_max >= Queues.WORST then
    return redis.call('ZRANGE', key, offset, offset + count - 1, 'WITHSCORES')
  end
  return redis.call('ZRANGE', key, priority_min, priority_max, 'BYSCORE', 'LIMIT', offset, count, 'WITHSCORES')
end

-- Returns id and priority of the first job in pages between two priorities.
local function first_paged(jobtype, priority_min, priority_max)
  if Queues.paged_of(jobtype) == 0 then
    return nil
  end
  local first, score = unpack(redis.call('ZRANGE', Queues.backlog_key(jobtype), priority_min, priority_max, 'BYSCORE',
    'LIMIT', 0, 1, 'WITHSCORES'))
  return first and redis.call('LINDEX', Queues.page_key(first, jobtype), 0), score
end

-- Returns id and priority of the first job between two priorities, in `ready` or pages; or nil.
function Queues.first_between(jobtype, priority_min, priority_max)
  local id, priority = unpack(redis.call('ZRANGE', ready_key(jobtype), priority_min, priority_max, 'BYSCORE', 'LIMIT',
    0, 1, 'WITHSCORES'))
  local head, score = first_paged(jobtype, priority_min, priority_max)
  if head and (not id or Order.precedes(tonumber(score), head, tonumber(priority), id)) then
    return head, score
  end
  return id, priority
end

-- Returns the first job of each of the first `most` priorities in use, flat: priority, id.
function Queues.heads(queue, most)
  local heads, from = {}, '-inf'
  while #heads < 2 * most do
    local id, priority = Queues.first_between(queue, from, '+inf')
    if not id then
      break
    end
    heads[#heads + 1], heads[#heads + 2], from = priority, id, '(' .. priority
  end
  return heads
end

-- Returns the first job of that priority, or nil.
function Queues.head_of(jobtype, priority)
  return (Queues.first_between(jobtype, priority, priority))
end

-- Returns the job's row in the indexes (index.lua).
function Queues.head_row(id, jobtype) return id .. ':' .. jobtype end

-- A keyed queue's name has a character that no jobtype has.
function Queues.is_keyed(queue) return queue:find('\30', 1, true) ~= nil end

-- Returns the jobtype of a queue.
function Queues.type_of(queue)
  local at = queue:find('\30', 1, true)
  return at and queue:sub(1, at - 1) or queue
end
-- Returns the index of a queue's tenant, where no rows of other tenants, however many, hide its own.
function Queues.all_of(queue)
  local at = queue:find('\31', 1, true)
  return at and K.queues .. queue:sub(1, at) or K.index
end
-- Returns whether a queue with this row in `tied` is parked (index.lua).
function Queues.is_parked(row) return row and row ~= '' end

-- Returns the first job of a parked queue, and the place where it waits; or nil.
function Queues.parked_at(queue) return (redis.call('HGET', K.tied, queue) or ''):match('^(%S+) (.*)$') end
function Queues.loose_key(queue) return K.loose .. Queues.type_of(queue) end

function Queues.begin_keyed()
  if not call.has_keyed then
    redis.call('HSET', K.keyed, '', '1')  -- for ever: jobs of keyed queues may be in flight
    call.has_keyed = true
  end
end

-- Returns whether a job that is about to come may be the first of its priority, or is it already; who is the first now;
-- and who is the first in `ready`. Cheap, as nearly no job is the first.
function Queues.may_lead(jobtype, priority, id)
  local here = redis.call('ZRANGE', ready_key(jobtype), priority, priority, 'BYSCORE', 'LIMIT', 0, 1)[1]
  if here and Order.before(here, id) then
    return false, here, here
  end
  local head = first_paged(jobtype, priority, priority)
  local known = head and not (here and Order.before(here, head)) and head or here
  return not (known and Order.before(known, id)), known, here
end
