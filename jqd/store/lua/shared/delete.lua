-- Deleting jobs with all that is known of them.
-- Gives owes_children(ids) → id → whether some that wait for it were not told yet how it ended (links: stage);
-- deletable(ids, now_ms); delete_jobs(ids, now_ms).
function Delete.owes_children(ids)
  local owes = {}
  if #ids > 0 and call.has_linked then
    for at, is_linked in ipairs(redis.call('ZMSCORE', K.linked, unpack(ids))) do
      owes[ids[at]] = is_linked and redis.call('ZCOUNT', K.children .. ids[at], 0, 2 * Change.began(ids[at])) > 0
    end
  end
  return owes
end

-- A kept result was promised for its time; its job stays with it, however many ended since. A job whose next content is on
-- its way stays, too, with the cancels that are meant for that content, and one that owes its end to its children: as if it ended now, so that others
-- are found first.
function Delete.deletable(ids, now_ms)
  local free, owes = {}, Delete.owes_children(ids)
  for _, id in ipairs(ids) do
    local has_result = redis.call('HEXISTS', K.result, id) == 1
    if not has_result and (owes[id] or Change.awaits_newer(id, call.has_changes and redis.call('HGET', K.jobs, id))) then
      redis.call('ZADD', K.ended, 'XX', 'GT', now_ms, id)
    elseif not has_result then
      table.insert(free, id)
    end
  end
  return free
end

-- An outcome says of which jobtype its job was, unless that may have another content since: only then its row is read.
local function count_deleted(ids)
  local kept, revised = redis.call('HMGET', K.outcome, unpack(ids)), call.has_changes and redis.call('HMGET', K.generation, unpack(ids)) or {}
  local found = {}
  for at, id in ipairs(ids) do
    local how, jobtype = Stands.ended_as(kept[at])
    how = how or redis.call('ZSCORE', K.dead, id) and 'failed' or 'succeeded'
    if revised[at] or not jobtype or jobtype == '' then
      jobtype = Move.header(redis.call('HGET', K.jobs, id) or '') or jobtype or ''
    end
    found[how] = found[how] or {}
    found[how][jobtype] = found[how][jobtype] or {}
    table.insert(found[how][jobtype], id)
  end
  for how, jobtypes in pairs(found) do
    for jobtype, its in pairs(jobtypes) do
      Counts.moved(jobtype, how, nil, its)
    end
  end
end

-- A job's unique key is its own until another has it.
local function free_unique(id)
  local FLOW = 14  -- place in a row's header
  local flow = unpacked(redis.call('HGET', K.jobs, id) or '')[FLOW]
  local key = type(flow) == 'table' and flow.unique or ''
  if key ~= '' and (redis.call('HGET', K.unique, key) or ''):match('^%S+') == id then
    redis.call('HDEL', K.unique, key)
  end
end

local function forget_links(ids)
  if not call.has_linked then
    return
  end
  for at, is_linked in ipairs(redis.call('ZMSCORE', K.linked, unpack(ids))) do
    if is_linked then
      free_unique(ids[at])
      redis.call('UNLINK', K.children .. ids[at], K.parents .. ids[at])
    end
  end
  redis.call('ZREM', K.linked, unpack(ids))
end

-- The sets that list the jobs come last: if the function were cut short, the next call would find the jobs again.
function Delete.delete_jobs(ids, now_ms)
  if #ids == 0 then
    return
  end
  count_deleted(ids)
  Change.drop_changes(ids, now_ms)
  Results.drop(ids)
  forget_links(ids)
  for _, name in ipairs({'tries', 'outcome', 'deaths', 'logs', 'jobs'}) do
    redis.call('HDEL', K[name], unpack(ids))
  end
  local told = {}
  for at, id in ipairs(ids) do
    told[at] = 'p' .. id
  end
  redis.pcall('HDEL', K.leases, unpack(told))
  redis.call('ZREM', K.logged, unpack(ids))
  redis.call('ZREM', K.dead, unpack(ids))
  redis.call('ZREM', K.ended, unpack(ids))
  Counts.write_counts(now_ms)
end
