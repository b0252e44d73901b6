#!lua
-- Gives pushers' own ids to jobs that are about to be journaled. A name that is not confirmed (no such job came) is free
-- again after a while, and at once for a push of the same content: under the same revision, for both may be in journals, and
-- are one job. No name is given while the store lacks what a journal knows.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, identity of the store as the caller knows it, ttl_ms, then per job: name, id, digest, 1 to replace what stands there, 2 if that
--          is another content and was cancelled, 3 if it has ended in whatever way
--          ttl_ms 0: id is what was given, and is given back, unless a journal may have it
-- Returns  flat per job: verdict (new, replace, duplicate, conflict, promised), id it stands for, revision (0 for the last three); of what is
--          given back nothing
-- Errors   JQD_STORE_CHANGED, JQD_UNSETTLED, JQD_WRONG_TYPE, JQD_BAD_VALUE, JQD_ARGUMENT; none after the first write
-- Cost     O(names)
--@include fail keys now order queues heads pages holder move early members life settled tries results change
local now_ms, now_us = clock(ARGV[1])
local identity, ttl_ms = ARGV[2], number(ARGV[3], 'ttl_ms')
local FIRST, FIELDS = 4, 4

expect('names', 'fence', 'life', 'tomb', 'members', 'generation', 'jobs', 'ended', 'dead', 'outcome', 'early')
expect_life(identity)
expect_settled(identity)
if (#ARGV - FIRST + 1) % FIELDS ~= 0 then
  fail('JQD_ARGUMENT', 'names')
end

-- Whether what stands under a name is over, as `replace` asks: cancelled, also before it came, or ended in whatever way.
local function is_over(id, revision, replace)
  if redis.call('HEXISTS', K.jobs, id) == 0 then
    return cancelled_to(id) >= revision and not early_holder(id)
  end
  local is_cancelled = (redis.call('HGET', K.outcome, id) or ''):sub(1, 1) == CANCELLED
  return changed(id) >= revision and has_ended(id) and (replace == '3' or is_cancelled)
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
  elseif confirmed and (replace == '3' or replace == '2' and known ~= digest) and is_over(id, tonumber(revision), replace) then
    return is_awaited(id, now_ms) and 'promised' or 'replace', id
  elseif known == digest then
    return confirmed and 'duplicate' or 'new', id, cancelled_to(id) < tonumber(revision) and revision or nil
  elseif confirmed then
    return 'conflict', id
  end
  local left_ms = tonumber(until_ms) - now_ms  -- more than is ever promised: the clock was set back
  return left_ms > 0 and (ttl_ms == 0 or left_ms <= ttl_ms) and 'promised' or 'new', id
end

-- Who was given a name gives it back: as if he had never asked. Another push of the same content, at whatever daemon, that was given the same
-- id may be in a journal.
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
local answer = {}
for at = FIRST, #ARGV, FIELDS do
  local name, digest = ARGV[at], ARGV[at + 2]
  local what, id, given = verdict(redis.call('HGET', K.names, name) or '', digest, ARGV[at + 3])
  id = id or ARGV[at + 1]
  local revision = '0'
  if what == 'new' or what == 'replace' then
    -- The job to be replaced stands until the new one comes: a journal that dies now takes nothing along.
    revision = what == 'new' and given or digits(next_fence(now_us))
    if what == 'new' then
      redis.call('HSET', K.names, name, revision .. ' ' .. id .. ' ' .. digits(now_ms + ttl_ms) .. ' ' .. digest)
      redis.call('ZADD', K.tomb, now_ms, 'n' .. name, now_ms, 'p' .. id)
      if id ~= ARGV[at + 1] then
        redis.call('HSETNX', K.generation, 'e' .. id, '0:0')  -- what was given the id before may be in a journal, too
      end
    else
      -- An edit of the content that stands there would bring it back.
      redis.call('HSET', K.generation, 'e' .. id, revision .. ':' .. digits(now_ms + ttl_ms))
    end
  end
  table.insert(answer, what)
  table.insert(answer, id)
  table.insert(answer, revision)
end
return answer
