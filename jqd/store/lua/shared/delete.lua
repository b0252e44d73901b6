-- Deletes ended jobs with all that is known of them, unless something still needs them.
local function owes_children(ids)
  local owes = {}
  if #ids > 0 and call.has_linked then
    for at, is_linked in ipairs(redis.call('ZMSCORE', K.linked, unpack(ids))) do
      owes[ids[at]] = is_linked and redis.call('ZCOUNT', K.children .. ids[at], 0, 2 * Change.began(ids[at])) > 0
    end
  end
  return owes
end

-- Counts that jobs are deleted. The outcome names the jobtype; the row is read only if that may have changed.
local function count_deleted(ids, rows)
  local kept, revised = redis.call('HMGET', K.outcome, unpack(ids)),
    call.has_changes and redis.call('HMGET', K.generation, unpack(ids)) or {}
  local found = {}
  for at, id in ipairs(ids) do
    local how, jobtype = Stands.ended_as(kept[at])
    how = how or redis.call('ZSCORE', K.dead, id) and 'failed' or 'succeeded'
    if revised[at] or not jobtype or jobtype == '' then
      jobtype = Move.header(rows[at] or redis.call('HGET', K.jobs, id) or '') or jobtype or ''
    end
    found[how] = found[how] or {}
    found[how][jobtype] = found[how][jobtype] or {}
    table.insert(found[how][jobtype], id)
  end
  for how, jobtypes in pairs(found) do
    for jobtype, type_ids in pairs(jobtypes) do
      Counts.moved(jobtype, how, nil, type_ids)
    end
  end
end

-- Frees a job's unique key, unless another job has it.
local function free_unique(id, row)
  local FLOW = 14  -- place in a row's header
  local flow = unpacked(row or '')[FLOW]
  local key = type(flow) == 'table' and flow.unique or ''
  if key ~= '' and (redis.call('HGET', K.unique, key) or ''):match('^%S+') == id then
    redis.call('HDEL', K.unique, key)
  end
end

local function forget_links(ids, rows)
  if not call.has_linked then
    return
  end
  for at, is_linked in ipairs(redis.call('ZMSCORE', K.linked, unpack(ids))) do
    if is_linked then
      free_unique(ids[at], rows[at])
      redis.call('UNLINK', K.children .. ids[at], K.parents .. ids[at])
    end
  end
  redis.call('ZREM', K.linked, unpack(ids))
end

-- The sets that list the jobs come last: if the function is cut short, the next call finds the jobs again.
local function delete_jobs(ids, rows, now_ms)
  if #ids == 0 then
    return
  end
  count_deleted(ids, rows)
  Change.drop_changes(ids, rows, now_ms)
  Results.drop(ids)
  forget_links(ids, rows)
  for _, name in ipairs({'tries', 'outcome', 'logs', 'jobs'}) do
    redis.call('HDEL', K[name], unpack(ids))
  end
  local progress = {}
  for at, id in ipairs(ids) do
    progress[at] = 'p' .. id
  end
  redis.pcall('HDEL', K.leases, unpack(progress))
  redis.call('ZREM', K.logged, unpack(ids))
  redis.call('ZREM', K.dead, unpack(ids))
  redis.call('ZREM', K.ended, unpack(ids))
  Counts.write_counts(now_ms)
end

-- A kept result keeps its job, however many ended since: it was promised for its time. A job also stays, as if it ended
-- now so that others are found first, if its next content is still to come (with the cancels for that), or if its
-- children are to be told of its end. `is_asked`: somebody named the jobs, and gives up their results.
local BYTES_MAX = 4 * 1024 * 1024

-- Deletes the ended jobs among these that may go. Returns which; how many were looked at; how many got a later date. Up
-- to BYTES_MAX of rows are read, and none of jobs that stay anyway.
function Delete.delete_free(ids, now_ms, is_asked)
  local owes, some, places, moved = owes_children(ids), {}, {}, 0
  local function stay(id, date_ms)
    if not is_asked then
      moved = moved + redis.call('ZADD', K.ended, 'XX', 'GT', 'CH', date_ms, id)
    end
  end

  for at, drop_at_ms in ipairs(#ids > 0 and redis.call('ZMSCORE', K.results, unpack(ids)) or {}) do
    local id, is_kept = ids[at], drop_at_ms and tonumber(drop_at_ms) > now_ms
    if is_asked then
      is_kept = not Move.has_ended(id)
    end
    if is_kept or owes[id] then
      stay(id, is_kept and drop_at_ms or now_ms + 1)
    else
      some[#some + 1], places[#places + 1] = id, at
    end
  end

  local free, rows, looked = some, {}, #ids
  -- the names in their rows matter only if there are names
  if #some > 0 and (call.has_changes or call.has_linked or redis.call('EXISTS', K.names) == 1) then
    local all = Move.rows_within(some, BYTES_MAX)
    free, looked = {}, #all < #some and places[#all + 1] - 1 or looked
    for at, row in ipairs(all) do
      if Change.awaits_newer(some[at], row) then
        stay(some[at], now_ms + 1)
      else
        free[#free + 1], rows[#rows + 1] = some[at], row
      end
    end
  end
  delete_jobs(free, rows, now_ms)
  return free, looked, moved
end
