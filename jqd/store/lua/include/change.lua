-- Contents of jobs that the store agreed to, so that any order of arrival ends with the same one.
-- Needs keys, fail, pages, move, early, holder, tries. A row of `generation` is "revision:generation": the number of the latest change,
-- and of the latest that was no mere edit; "!" behind them: the latest found the job in a hand or ended, and left it there.
-- Field "c<id>": up to which generation it was cancelled; "e<id>": "revision:until_ms" of a change that is about to come. It stays when the
-- change is there, or is 0:0, for it says that journals may hold several contents of the job. When such a job is deleted its row stays as
-- long as the note `o`: a content of no greater revision that comes after that begins nothing anew.
-- Revisions of a store that is gone may be ahead of this one's, if its clock was set back. The sequence goes on above all revisions it meets.
-- Gives began(id) → generation, 0 for a job that is as it was pushed; changed(id) → revision, generation;
-- cancelled_to(id); note_cancel(id, to); meant_so(generation, packed) → the outcome as `outcome` keeps it;
-- gives_way(kept, generation): an ending to a success; note_late_end(id, kept, dead, now_ms) → whether it was noted; forget_end(id or note); prefer_cancel(id, generation, now_ms): a cancel beats a failure;
-- awaits_newer(id, row); last_try(id) → fence;
-- await_change(id, revision, until_ms); is_awaited(id, now_ms): a change that was given its number has not come; drop_changes(ids, now_ms); apply_change(one, now_ms, history_max).
local has_changes = redis.call('EXISTS', K.generation) == 1

local function changed(id)
  local row = has_changes and redis.call('HGET', K.generation, id)
  if not row then
    return 0, 0
  end
  local revision, generation = row:match('^(%d+):(%d+)!?$')
  return tonumber(revision) or 0, tonumber(generation) or 0
end

local function began(id)
  local _, generation = changed(id)
  return generation
end

local function cancelled_to(id)
  return tonumber(has_changes and redis.call('HGET', K.generation, 'c' .. id) or nil) or 0
end

local highest
local function go_on_above(revision)
  if revision > 0 then
    highest = highest or tonumber(redis.call('GET', K.fence) or '0') or 0
    if revision > highest then
      highest = revision
      redis.call('SET', K.fence, digits(revision))
    end
  end
end

local function note_cancel(id, to)
  go_on_above(to)
  if to > cancelled_to(id) then
    redis.call('HSET', K.generation, 'c' .. id, string.format('%.0f', to))
    has_changes = true
  end
end

-- Whether a later content of this job was acknowledged under its name, and is on its way: the content that is here is not
-- the last.
local function awaits_newer(id, row)
  local name = has_changes and row and job_name(row) or ''
  if name == '' then
    return false
  end
  local given, named, until_ms = (redis.call('HGET', K.names, name) or ''):match('^(%d+) (%S+) (%d+) ')
  return named == id and until_ms == '0' and tonumber(given) > changed(id)
end

local function await_change(id, revision, until_ms)
  redis.call('HSET', K.generation, 'e' .. id, digits(revision) .. ':' .. digits(until_ms))
end

local function is_awaited(id, now_ms)
  local row = has_changes and redis.call('HGET', K.generation, 'e' .. id) or ''
  local revision, until_ms = row:match('^(%d+):(%d+)$')
  return revision and tonumber(revision) > changed(id) and tonumber(until_ms) > now_ms
end

-- Frees the names of jobs that are deleted.
local function drop_changes(ids, now_ms)
  if not has_changes then
    return
  end
  for _, id in ipairs(ids) do
    local row = redis.call('HGET', K.jobs, id)
    local name = row and job_name(row)
    if name and name ~= '' and (redis.call('HGET', K.names, name) or ''):match('^%d+ (%S+) ') == id then
      redis.call('HDEL', K.names, name)
    end
    if redis.call('HEXISTS', K.generation, 'e' .. id) == 1 then
      redis.call('ZADD', K.tomb, now_ms, 'o' .. id)
      redis.call('HDEL', K.generation, 'c' .. id, 'e' .. id)
    else
      redis.call('HDEL', K.generation, id, 'c' .. id)
    end
  end
end

local function meant_so(generation, packed)
  return MEANT .. generation .. ':' .. packed
end

-- The latest generation that a kept outcome may be of. Outcomes of the first content name none: a content that ran under a
-- fence is older than any change that came later. Of a packed outcome only the second value is read, its fence.
local function meant_for(kept)
  local generation = kept:match('^' .. MEANT .. '(%d+):')
  if generation then
    return tonumber(generation)
  end
  local at = kept:byte(1) == 0xdc and 3 or 1
  local good, _, _, fence = pcall(cmsgpack.unpack_limit, kept, 2, at)
  return (good and tonumber(fence) or 0) - 1
end

-- Of a job, or of a note `z`.
local function forget_end(id)
  redis.call('HDEL', K.outcome, id)
  redis.call('HDEL', K.result, id)
  redis.call('ZREM', K.results, id)
end

-- Whether the ending of the job was meant for this content, or for a later one.
local function end_stands(one)
  local packed = redis.call('HGET', K.outcome, one.id) or ''
  if packed:sub(1, 1) == CANCELLED then
    return cancelled_to(one.id) >= one.generation
  elseif packed:sub(1, 1) == CRASHED then
    return began(one.id) >= one.generation  -- of the content that is here
  end
  return meant_for(packed) >= one.generation
end

local FAILED, DEAD_END = 2, 3  -- fates (job.Fate) of an outcome: its third value

-- The packed outcome in one that is kept, if it is a failure, else nil; the generation it names, 0 for none.
local function failure_in(kept)
  local generation, from = kept:match('^' .. MEANT .. '(%d+):()')
  local packed = kept:sub(from or 1)
  local at = packed:byte(1) == 0xdc and 3 or 1
  local good, _, _, _, fate = pcall(cmsgpack.unpack_limit, packed, 3, at)
  return good and (fate == FAILED or fate == DEAD_END) and packed or nil, tonumber(generation) or 0
end

-- Whether an ending, as it is kept, gives way to a success of that generation (0: of the first content): who succeeded did run. A
-- cancel and deaths in hand do always, a failure if it is of the same content. The caller knows of no later content that is here.
local function gives_way(kept, generation)
  local mark = kept:sub(1, 1)
  if mark == CANCELLED or mark == CRASHED then
    return true
  end
  local packed, meant = failure_in(kept)
  return packed ~= nil and meant == generation
end

-- Notes an ending (`z`, of the latest such) that came while the job lay among the ended already, and that is of a later
-- content than the one that ended: a change that begins the job anew is still on its way. Its result lies under the note's
-- name, too, and the caller puts it there. Returns whether the ending was noted.
local function note_late_end(id, kept, dead, now_ms)
  local note = 'z' .. id
  local row, late = unpack(redis.call('HMGET', K.outcome, id, note))
  row = row or ''
  local known = row:sub(1, 1) == CANCELLED and cancelled_to(id) or meant_for(row)
  if late then
    known = math.max(known, meant_for(late:sub(2)))
  end
  local failed, generation = failure_in(kept)
  local wins = late and not failed and gives_way(late:sub(2), generation)
  if meant_for(kept) <= known and not wins then
    return false
  end
  forget_end(note)  -- with the result of an earlier one
  redis.call('HSET', K.outcome, note, (dead and 'd' or 's') .. kept)
  redis.call('ZADD', K.tomb, now_ms, note)
  return true
end

-- Ends a job as cancelled that lies among the ended by a failure, if a cancel of it (the caller knows of one) is meant for this
-- generation and for the content that failed: whatever came first. Not so while the success of a content that was cancelled as
-- well waits for that content, which it ends.
local function prefer_cancel(id, generation, now_ms)
  local kept, late = unpack(redis.call('HMGET', K.outcome, id, 'z' .. id))
  if not kept or kept:sub(1, 1) == CANCELLED then
    return
  end
  local to, packed, meant = cancelled_to(id), failure_in(kept)
  if not packed or to < math.max(generation, meant) then
    return
  elseif late and not failure_in(late:sub(2)) and meant_for(late:sub(2)) <= to then
    return
  end
  end_cancelled(id, now_ms, packed)
  redis.call('ZREM', K.dead, id)
end

-- Where the job lies now; the caller empties the place that it left.
local function place_change(one, now_ms)
  local cancelled = cancelled_to(one.id)
  if cancelled > 0 and cancelled >= one.generation then
    end_cancelled(one.id, now_ms)
    return 'ended'
  end
  if one.eligible_at_ms > now_ms then
    redis.call('ZADD', K.later, one.eligible_at_ms, one.id)
    return 'later'
  end
  add_ready(one.jobtype, one.priority, one.id)
  return 'ready'
end

-- The end of a content that is replaced: if it failed, the failure stays in the job's history.
local function begin_anew(id, history_max)
  local kept = redis.call('HGET', K.outcome, id) or ''
  local packed = failure_in(kept:sub(1, 1) == CANCELLED and kept:sub(2) or kept)
  forget_end(id)
  if packed then
    add_try(id, 0, packed, history_max)
  end
end

-- Whether an ending that was noted late is of this content: then it ends the job, and all of the older ending goes: of its
-- result nothing stays, of its failure the history.
local function meet_late_end(one, now_ms, history_max)
  local id, note = one.id, 'z' .. one.id
  local row = redis.call('HGET', K.outcome, note)
  if not row or meant_for(row:sub(2)) < one.generation then
    return false
  end
  begin_anew(id, history_max)
  redis.call('HSET', K.outcome, id, row:sub(2))
  local result, drop_at_ms = redis.call('HGET', K.result, note), redis.call('ZSCORE', K.results, note)
  if result and drop_at_ms then
    redis.call('HSET', K.result, id, result)
    redis.call('ZADD', K.results, drop_at_ms, id)
  end
  local set, other = K.ended, K.dead
  if row:sub(1, 1) == 'd' then
    set, other = other, set
  end
  redis.call('ZADD', set, result and drop_at_ms or now_ms, id)
  redis.call('ZREM', other, id)
  forget_end(note)
  redis.call('ZREM', K.tomb, note)
  prefer_cancel(id, one.generation, now_ms)
  return true
end

-- The latest claim of which the store knows that its attempt failed, of those that are kept; 0 for none.
local function last_try(id)
  local row, latest, at = redis.call('HGET', K.tries, id) or '', 0, 5
  while at + 3 <= #row do
    local length = struct.unpack('>I4', row, at)
    latest = math.max(latest, (tried(row:sub(at + 4, at + 3 + length))))
    at = at + 4 + length
  end
  return latest
end

-- A content that begins anew has its own attempts, whatever was noted before it came; the earlier ones stay as history.
local function count_anew(one)
  local row = redis.call('HGET', K.tries, one.id)
  if not row or #row < 4 then
    return
  end
  local count, at = 0, 5
  while at + 3 <= #row do
    local length = struct.unpack('>I4', row, at)
    local fence, attempt = tried(row:sub(at + 4, at + 3 + length))
    if fence > one.generation then
      count = math.max(count, attempt)
    end
    at = at + 4 + length
  end
  redis.call('HSET', K.tries, one.id, struct.pack('>I4', count) .. row:sub(5))
end

-- Of a job that has not come yet, notes count if they were meant for this content.
local function place_unseen(one, now_ms, history_max)
  local id = one.id
  local sysid = early_holder(id)
  if sysid then
    drop_early(id)
    if redis.call('ZSCORE', held_key(sysid), id) then
      redis.call('ZREM', K.tomb, 'r' .. id)
      return
    end
  end
  local notes = redis.call('ZMSCORE', K.tomb, 's' .. id, 'd' .. id, 'c' .. id)
  local ended, killed, cancelled = notes[1], notes[2], notes[3]
  if (ended or killed) and end_stands(one) then
    redis.call('ZADD', ended and K.ended or K.dead, ended or killed, id)
    if cancelled then
      prefer_cancel(id, one.generation, now_ms)
    end
  elseif meet_late_end(one, now_ms, history_max) then
    ended = true
  elseif cancelled and cancelled_to(id) >= one.generation then
    end_cancelled(id, now_ms)
  else
    if ended or killed then
      begin_anew(id, history_max)
    end
    place_change(one, now_ms)
  end
  redis.call('ZREM', K.tomb, 's' .. id, 'd' .. id, 'c' .. id, 'r' .. id, 'o' .. id)
end

-- Changes a job that is here. If it is in a hand only its row is exchanged: the outcome of an older attempt does not count
-- any more. Returns whether the job waits now.
local function place_again(one, row, now_ms, history_max)
  local id = one.id
  local set = redis.call('ZSCORE', K.ended, id) and K.ended or redis.call('ZSCORE', K.dead, id) and K.dead
  if cancelled_to(id) < one.generation then
    redis.call('ZREM', K.tomb, 'c' .. id)  -- that was of an earlier content
  end
  if set then
    if not end_stands(one) and not meet_late_end(one, now_ms, history_max) then
      begin_anew(id, history_max)
      local place = place_change(one, now_ms)
      if place ~= 'ended' or set ~= K.ended then
        redis.call('ZREM', set, id)
      end
      return place ~= 'ended'
    end
  elseif not holder(id) then
    local jobtype, priority = header(row)
    local known = jobtype and head_of(jobtype, priority)
    local place = place_change(one, now_ms)
    if place ~= 'later' then
      redis.call('ZREM', K.later, id)
    end
    if jobtype and (place ~= 'ready' or jobtype ~= one.jobtype) then
      drop_waiting(jobtype, priority, id)
    else
      drop_paged(jobtype or one.jobtype, priority or tonumber(one.priority), id)
      if known == id then
        mend_head(jobtype, priority, known)
      end
      mend_type(one.jobtype)
    end
    return place ~= 'ended'
  end
  return false
end

-- Ends a job that waits, because its name went to another.
local function supersede(id, now_ms)
  if redis.call('HEXISTS', K.jobs, id) == 1 and not has_ended(id) and not holder(id) then
    local jobtype, priority = header(redis.call('HGET', K.jobs, id))
    end_cancelled(id, now_ms)
    redis.call('ZREM', K.later, id)
    if jobtype then
      drop_waiting(jobtype, priority, id)
    end
  end
end

-- Whether the name is this job's: it belongs to the job that the store gave it to last.
local function take_name(one, now_ms)
  local revision, id, _, digest = (redis.call('HGET', K.names, one.name) or ''):match('^(%d+) (%S+) (%d+) (%S*)$')
  if revision and tonumber(revision) > one.revision then
    return id == one.id
  elseif id and id ~= one.id then
    supersede(id, now_ms)
  end
  digest = one.digest ~= '' and one.digest or digest or ''
  redis.call('HSET', K.names, one.name, digits(one.revision) .. ' ' .. one.id .. ' 0 ' .. digest)
  redis.call('ZREM', K.tomb, 'n' .. one.name)
  return true
end

-- Whether a job that is not here was here in this life, and is deleted: its change comes too late, and begins nothing anew.
-- The journal tells in which life an edit or a retry got its revision, when the job was there. In a later life the change
-- may come before its job is replayed. A push (it has a digest) that tells in which life it got its name is over when the
-- name is not its own any more: another content has it, or it went with its job.
local function is_over(one)
  if one.life == '' or one.life ~= redis.call('HGET', K.life, 'id') then
    return false
  end
  return one.digest == '' or (redis.call('HGET', K.names, one.name) or ''):match('^%d+ (%S+) ') ~= one.id
end

-- Returns 1 when the job was not here before.
local function apply_change(one, now_ms, history_max)
  local id = one.id
  go_on_above(one.revision)
  local row = redis.call('HGET', K.jobs, id)
  local revision, generation = changed(id)
  if revision >= one.revision or not row and (one.was_here or is_over(one)) then
    return 0
  end
  local waits = true
  if one.name ~= '' and not take_name(one, now_ms) then
    end_cancelled(id, now_ms)
    waits = false
  elseif row then
    waits = place_again(one, row, now_ms, history_max)
  else
    place_unseen(one, now_ms, history_max)
  end
  redis.call('HSET', K.jobs, id, one.row)
  if one.generation > generation then
    count_anew(one)
  end
  generation = digits(math.max(generation, one.generation))
  redis.call('HSET', K.generation, id, digits(one.revision) .. ':' .. generation .. (waits and '' or '!'))
  if one.follows then
    redis.call('HSETNX', K.generation, 'e' .. id, '0:0')
  end
  has_changes = true
  return row and 0 or 1
end
