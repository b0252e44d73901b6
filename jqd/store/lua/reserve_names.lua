-- Gives pushers' own ids to jobs that are about to be journaled. A name that is not confirmed (no such job came) is
-- free again after a while, and at once for a push of the same content: under the same revision, for both may be in
-- journals, and are one job. No name is given while the store lacks what a journal knows.
-- ARGV     1    now_ms
--          2    identity of the store as the caller knows it
--          3    ttl_ms
--          then for each job: name, id, digest; 1 to replace what stands there, 2 if that is another content and was
--               cancelled, 3 if it has ended in whatever way
--          ttl_ms 0: id is what was given, and is given back, unless a journal may have it
-- Returns  flat per job: verdict (new, replace, duplicate, conflict, promised), id it stands for, revision (0 for the
--          last three); of what is given back nothing
-- Errors   JQD_STORE_CHANGED, JQD_UNSETTLED, JQD_BAD_VALUE, JQD_ARGUMENT; none after the first write
-- Cost     O(names)
register('reserve_names', {}, function()
  local now_ms, now_us = clock(ARGV[1])
  local identity, ttl_ms = ARGV[2], number(ARGV[3], 'ttl_ms')
  local FIRST, FIELDS = 4, 4

  Life.expect_life(identity)
  Settled.expect_settled(identity)
  expect_rows(FIRST, FIELDS, 'names')

  -- Whether what stands under a name is over, as `replace` asks: cancelled, also before it came, or ended in whatever
  -- way.
  local function is_over(id, revision, replace)
    if redis.call('HEXISTS', K.jobs, id) == 0 then
      return Change.cancelled_to(id) >= revision and not About.hold(id)
    end
    local is_cancelled = (redis.call('HGET', K.outcome, id) or ''):sub(1, 1) == Move.CANCELLED
    return Change.changed(id) >= revision and Move.has_ended(id) and (replace == '3' or is_cancelled)
  end

  -- The verdict, the id that the name stands for, and the revision that the same content was given before.
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
    local left_ms = tonumber(until_ms) - now_ms  -- more than is ever promised: the clock was set back
    return left_ms > 0 and (ttl_ms == 0 or left_ms <= ttl_ms) and 'promised' or 'new', id
  end

  -- Who was given a name gives it back: as if he had never asked. Another push of the same content, at whatever daemon,
  -- that was given the same id may be in a journal.
  local function free(name, id, digest)
    local its, until_ms, known = (redis.call('HGET', K.names, name) or ''):match('^%d+ (%S+) (%d+) (%S*)$')
    if its == id and known == digest and until_ms ~= '0' and redis.call('HEXISTS', K.generation, 'e' .. id) == 0 then
      redis.call('HDEL', K.names, name)
      redis.call('ZREM', K.tomb, 'n' .. name, 'p' .. id)
    end
  end

  if ttl_ms == 0 then
    for at = FIRST, #ARGV, FIELDS do
      free(ARGV[at], ARGV[at + 1], ARGV[at + 2])
    end
    return {}
  end

  -- Everything is asked of all names at once, and written at once: a call for each name costs more than all the rest.
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
  for place, one in ipairs(given) do
    local revision = '0'
    if one.what == 'new' or one.what == 'replace' then
      -- The job to be replaced stands until the new one comes: a journal that dies now takes nothing along.
      revision = one.revision
      if not revision then
        revision, fence = string.format('%.0f', fence), fence + 1
      end
      if one.what == 'new' then
        rows[#rows + 1], rows[#rows + 2] = names[place], revision .. ' ' .. one.id .. ' ' .. until_ms
          .. ' ' .. one.digest
        notes[#notes + 1], notes[#notes + 2] = now_ms, 'n' .. names[place]
        notes[#notes + 1], notes[#notes + 2] = now_ms, 'p' .. one.id
        if one.id ~= one.own_id then
          -- what was given the id before may be in a journal, too
          redis.call('HSETNX', K.generation, 'e' .. one.id, '0:0')
        end
      else
        -- An edit of the content that stands there would bring it back.
        Change.await_change(one.id, revision, ttl_ms, now_ms)
      end
    end
    local told = 3 * place
    answer[told - 2], answer[told - 1], answer[told] = one.what, one.id, revision
  end
  if #rows > 0 then
    redis.call('HSET', K.names, unpack(rows))
    Heads.call_with(notes, 'ZADD', K.tomb)
  end
  return answer
end)
