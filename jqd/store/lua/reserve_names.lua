-- Gives ids that pushers chose to jobs that are about to be journaled. A name that is not confirmed is free again after
-- a while; for a push of the same content at once, under the same revision: both may be in journals, and are one job.
-- No name is given while a journal may know more than the store.
-- ARGV     1    now_ms
--          2    identity of the store
--          3    ttl_ms
--          then for each job: name, id, digest; 1 to replace the job that has the name, 2 only a cancelled one by
--          another
--               content, 3 only one that has ended
--          ttl_ms 0: give these names back, with the ids that they were given, unless a journal may have them
-- Returns  flat per job: verdict (new, replace, duplicate, conflict, promised), id of the name, revision (0 for the
--          last three); nothing for names that are given back
-- Errors   JQD_STORE_CHANGED, JQD_UNSETTLED, JQD_BAD_VALUE; none after the first write
-- Cost     O(names)
register('reserve_names', {}, function()
  local now_ms, now_us = clock(ARGV[1])
  local identity, ttl_ms = ARGV[2], tonumber(ARGV[3])
  local FIRST, FIELDS = 4, 4

  Life.expect_life(identity)
  Settled.expect_settled(identity)

  -- Returns whether the job that has a name may be replaced: if cancelled (even before it came) or ended, by `replace`.
  local function is_over(id, revision, replace)
    if redis.call('HEXISTS', K.jobs, id) == 0 then
      return Change.cancelled_to(id) >= revision and not About.hold(id)
    end
    local is_cancelled = (redis.call('HGET', K.outcome, id) or ''):sub(1, 1) == Move.CANCELLED
    return Change.changed(id) >= revision and Move.has_ended(id) and (replace == '3' or is_cancelled)
  end

  -- Returns the verdict, the id of the name, and the revision that the same content was given before.
  local function verdict(row, digest, replace)
    local revision, id, until_ms, known = row:match('^(%d+) (%S+) (%d+) (%S*)$')
    if not id then
      return 'new', nil
    end
    local confirmed = until_ms == '0'
    -- A cancelled job stays cancelled: the same push may repeat one that came before the cancel.
    if replace == '1' then
      return 'replace', id
    elseif confirmed and (replace == '3' or replace == '2' and known ~= digest)
        and is_over(id, tonumber(revision), replace) then
      return Change.is_awaited(id, now_ms) and 'promised' or 'replace', id
    elseif known == digest then
      return confirmed and 'duplicate' or 'new', id, Change.cancelled_to(id) < tonumber(revision) and revision or nil
    elseif confirmed then
      return 'conflict', id
    end
    local left_ms = tonumber(until_ms) - now_ms  -- above ttl_ms the clock was set back
    return left_ms > 0 and (ttl_ms == 0 or left_ms <= ttl_ms) and 'promised' or 'new', id
  end

  -- Gives a name back, unless another push of the same content, at any daemon, got the same id: a journal may have it.
  local function free(name, id, digest)
    local owner, until_ms, known = (redis.call('HGET', K.names, name) or ''):match('^%d+ (%S+) (%d+) (%S*)$')
    if owner == id and known == digest and until_ms ~= '0' and redis.call('HEXISTS', K.generation, 'e' .. id) == 0 then
      redis.call('HDEL', K.names, name)
      redis.call('ZREM', K.tombstones, 'n' .. name, 'p' .. id)
    end
  end

  if ttl_ms == 0 then
    for at = FIRST, #ARGV, FIELDS do
      free(ARGV[at], ARGV[at + 1], ARGV[at + 2])
    end
    return {}
  end

  -- All names are asked for together, and written together: a call for each costs more than all the rest.
  local names, given, fresh = {}, {}, 0
  for at = FIRST, #ARGV, FIELDS do
    names[#names + 1] = ARGV[at]
  end
  for place, row in ipairs(#names > 0 and redis.call('HMGET', K.names, unpack(names)) or {}) do
    local at = FIRST + (place - 1) * FIELDS
    local what, id, revision = verdict(row or '', ARGV[at + 2], ARGV[at + 3])
    given[place] = {what = what, id = id or ARGV[at + 1], own_id = ARGV[at + 1], digest = ARGV[at + 2],
      revision = what == 'new' and revision or nil}
    if what == 'replace' or what == 'new' and not revision then
      fresh = fresh + 1
    end
  end
  local fence, until_ms = fresh > 0 and Members.next_fence(now_us, fresh) or 0, digits(now_ms + ttl_ms)
  local answer, rows, notes = {}, {}, {}
  for place, verdict in ipairs(given) do
    local revision = '0'
    if verdict.what == 'new' or verdict.what == 'replace' then
      -- The job to be replaced stays until the new one comes: nothing is lost if the journal dies now.
      revision = verdict.revision
      if not revision then
        revision, fence = string.format('%.0f', fence), fence + 1
      end
      if verdict.what == 'new' then
        rows[#rows + 1], rows[#rows + 2] = names[place], revision .. ' ' .. verdict.id .. ' ' .. until_ms
          .. ' ' .. verdict.digest
        notes[#notes + 1], notes[#notes + 2] = now_ms, 'n' .. names[place]
        notes[#notes + 1], notes[#notes + 2] = now_ms, 'p' .. verdict.id
        if verdict.id ~= verdict.own_id then
          -- a journal may have the push that got this id before, too
          redis.call('HSETNX', K.generation, 'e' .. verdict.id, '0:0')
        end
      else
        -- An edit of the replaced content would bring it back.
        Change.await_change(verdict.id, revision, ttl_ms, now_ms)
      end
    end
    local filled = 3 * place
    answer[filled - 2], answer[filled - 1], answer[filled] = verdict.what, verdict.id, revision
  end
  if #rows > 0 then
    redis.call('HSET', K.names, unpack(rows))
    Index.call_with(notes, 'ZADD', K.tombstones)
  end
  return answer
end)
