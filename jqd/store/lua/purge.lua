-- Deletes what was kept long enough: results, spent rates, spare pieces of large results, ended jobs, notes of jobs
-- that never came. Dead jobs stay. While the store is being restored only results go.
-- ARGV     now_ms, identity of the store, limit of each kind, ended_keep_ms, ended_keep_jobs, tombstone_keep_ms
-- Returns  number of rows deleted, spent rates counted only if many are due; number of jobs that stay and got a later
--          date
-- Errors   none
-- Cost     O(limit · log rows), and bytes of rows, some megabytes at most
register('purge', {'allow-oom'}, function()
  local now_ms, now_us = clock(ARGV[1])
  local identity = ARGV[2]
  local limit = tonumber(ARGV[3])
  local ended_keep_ms, ended_keep_jobs = tonumber(ARGV[4]), tonumber(ARGV[5])
  local tombstone_keep_ms = tonumber(ARGV[6])
  local SPARE = 16  -- large results; the server takes 0.1 ms to let go of 16 MiB

  local function due(key, before_ms)
    return redis.call('ZRANGE', key, '-inf', before_ms, 'BYSCORE', 'LIMIT', 0, limit)
  end

  local function drop_due_results()
    local owners = due(K.results, now_ms)
    if #owners > 0 then
      Results.drop(owners)
    end
    return #owners
  end

  local function drop_spare()
    local spare = redis.call('ZRANGE', K.spare, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, SPARE)
    for _, named in ipairs(spare) do
      Results.drop_pieces(named)
    end
    return #spare
  end

  -- Drops notes of watchers who are gone.
  local function drop_watched()
    local ids = due(K.watched, now_ms)
    if #ids > 0 then
      redis.call('ZREM', K.watched, unpack(ids))
    end
    return #ids
  end

  local function drop_ended()
    local ids = due(K.ended, now_ms - ended_keep_ms)
    local over = math.min(redis.call('ZCARD', K.ended) - ended_keep_jobs, limit)
    if over > #ids then
      ids = redis.call('ZRANGE', K.ended, 0, over - 1)
    end
    local gone, _, moved = Delete.delete_free(ids, now_ms)
    return #gone, moved
  end

  local function drop_notes()
    local dropped, moved = 0, 0
    for _, note in ipairs(due(K.tombstones, now_ms - tombstone_keep_ms)) do
      local letter, id = note:sub(1, 1), note:sub(2)
      if letter == 'n' then
        -- Frees a name whose job never came, as its daemon died or lost its journal. If an older content of the job is
        -- here, the name stands for that again.
        local job_id = (redis.call('HGET', K.names, id) or ''):match('^%d+ (%S+) ')
        local row = job_id and redis.call('HGET', K.jobs, job_id)
        if job_id and not row then
          redis.call('HDEL', K.names, id)
          redis.call('HDEL', K.generation, 'e' .. job_id)
        elseif job_id and Change.awaits_newer(job_id, row) then
          redis.call('HSET', K.names, id, digits(Change.changed(job_id)) .. ' ' .. job_id .. ' 0 ')
        end
        redis.call('ZREM', K.tombstones, note)
        dropped = dropped + 1
      elseif letter == 'p' then
        redis.call('ZREM', K.tombstones, note)
        dropped = dropped + 1
      elseif letter == 'z' then
        Change.forget_end(note)
        redis.call('ZREM', K.tombstones, note)
        dropped = dropped + 1
      elseif redis.call('HEXISTS', K.jobs, id) == 1 or About.hold(id) then
        -- The note of a held job's cancel stays, however long it runs.
        redis.call('ZADD', K.tombstones, now_ms, note)
        moved = moved + 1
      else
        -- Each kind of note has rows of its own, which another note of the same job may need.
        if letter == 'r' then
          redis.call('HDEL', K.tries, id)
        elseif letter == 'c' then
          redis.call('HDEL', K.generation, 'c' .. id)
        elseif letter == 'o' then
          redis.call('HDEL', K.generation, id)
        else
          Change.forget_end(id)
        end
        redis.call('HDEL', K.logs, id)
        redis.call('ZREM', K.logged, id)
        redis.call('ZREM', K.tombstones, note)
        dropped = dropped + 1
      end
    end
    return dropped, moved
  end

  local function drop_groups()
    local GROUP_KEEP_MS = 7 * 86400000  -- after its last change
    local groups = due(K.groups, now_ms - GROUP_KEEP_MS)
    for _, group in ipairs(groups) do
      local key = group:match('^%z(.*)$')
      if key and (redis.call('HGET', K.unique, key) or ''):sub(1, 1) == '~' then
        redis.call('HDEL', K.unique, key)
      end
      redis.call('UNLINK', K.grouped .. group)
      redis.call('ZREM', K.groups, group)
    end
    return #groups
  end

  local rows, moved = drop_due_results() + drop_spare() + drop_watched() + drop_groups() + Limits.sweep(now_us), 0
  if Settled.is_told(identity, now_ms) then
    local ended, ended_moved = drop_ended()
    local notes, notes_moved = drop_notes()
    rows, moved = rows + ended + notes, ended_moved + notes_moved
  end
  return {rows, moved}
end)
