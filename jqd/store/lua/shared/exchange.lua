-- Bringing another content of a job: a push under its pusher's id, an edit, a retry.
local function place_change(one, now_ms, retry_ms)
  local cancelled = Change.cancelled_to(one.id)
  if cancelled > 0 and cancelled >= one.generation then
    Move.end_cancelled(one.id, now_ms)
    return 'ended'
  end
  local due_ms = math.max(one.eligible_at_ms, retry_ms or 0)  -- an edit after that attempt says the date itself
  if due_ms > now_ms then
    redis.call('ZADD', K.later, due_ms, one.id)
    Counts.note_blocked(one.id, due_ms, now_ms)
    return 'later'
  end
  Move.add_ready(one.jobtype, one.priority, one.id, one.eligible_at_ms, one.generation)
  return 'ready'
end

-- Whether an ending that was noted late is of this content: then it ends the job, and all of the older ending goes: of
-- its result nothing stays, of its failure the history.
local function meet_late_end(one, now_ms, history_max)
  local id, note = one.id, 'z' .. one.id
  local row = redis.call('HGET', K.outcome, note)
  if not row or Change.meant_for(row:sub(2)) < one.generation then
    return false
  end
  Change.begin_anew(id, history_max)
  redis.call('HSET', K.outcome, id, row:sub(2))
  Results.hand(note, id)
  local set, other = K.ended, K.dead
  if row:sub(1, 1) == 'd' then
    set, other = other, set
  end
  redis.call('ZADD', set, Change.noted_end(id, now_ms), id)
  redis.call('ZREM', other, id)
  Change.forget_end(note)
  redis.call('ZREM', K.tomb, note)
  Change.prefer_cancel(id, one.generation)
  return true
end

-- A content that begins anew has its own attempts, whatever was noted before it came; the earlier ones stay as history,
-- and that none of its own has begun is marked: it may expire.
local function count_anew(one)
  local row = redis.call('HGET', K.tries, one.id) or ''
  if not Move.has_begun(row) then
    row = row:sub(1, 4) .. row:sub(9)
  end
  if #row <= 4 then
    redis.call('HDEL', K.tries, one.id)
    return
  end
  local count, has_own = Tries.told_in(row, one.generation)
  redis.call('HSET', K.tries, one.id, struct.pack('>I4', count) .. (has_own and '' or '\0\0\0\0') .. row:sub(5))
end

-- Whether the ending of the job was meant for this content, or for a later one.
local function end_stands(one)
  local packed = redis.call('HGET', K.outcome, one.id) or ''
  if packed:sub(1, 1) == Move.CANCELLED then
    return Change.cancelled_to(one.id) >= one.generation
  elseif packed:sub(1, 1) == Move.CRASHED or packed:sub(1, 1) == Move.EXPIRED then
    return Change.began(one.id) >= one.generation  -- of the content that is here
  end
  return Change.meant_for(packed) >= one.generation
end

-- Whether an ending that was noted before the job came is of this content: then it ends the job.
local function meet_end(one, now_ms)
  local id = one.id
  local ended, killed = unpack(redis.call('ZMSCORE', K.tomb, 's' .. id, 'd' .. id))
  if not (ended or killed) or not end_stands(one) then
    return false, ended or killed
  end
  redis.call('ZADD', ended and K.ended or K.dead, Change.noted_end(id, now_ms), id)
  return true
end

local function drop_notes_of(id)
  redis.call('ZREM', K.tomb, 's' .. id, 'd' .. id, 'c' .. id, 'r' .. id, 'o' .. id)
end

-- A job comes, whatever was told of it before. Returns where it lies now; the caller empties the place that it left.
-- `retry_ms`: until when its last attempt has it wait, if it was told of before. Of a job that has not come yet, notes
-- count if they were meant for this content: of generation 0 all but an ending of a later one.
function Exchange.place_unseen(one, now_ms, history_max)
  local id = one.id
  Counts.note_blocked(id, one.eligible_at_ms, now_ms)  -- its parents are to know of it, whatever became of it
  local hold = About.hold(id)
  if hold then
    About.come(id, hold, Parked.take_hold(one.jobtype, id, hold.fence))
    redis.call('ZREM', K.tomb, 'r' .. id, 'o' .. id)
    if Change.cancelled_to(id) < one.generation then
      redis.call('ZREM', K.tomb, 'c' .. id)  -- that was of an earlier content
    end
    return
  end
  local cancelled = redis.call('ZSCORE', K.tomb, 'c' .. id)
  local is_over, is_noted = meet_end(one, now_ms)
  if is_over then
    if cancelled then
      Change.prefer_cancel(id, one.generation)
    end
  elseif one.generation > 0 and meet_late_end(one, now_ms, history_max) then
    -- by a later ending than the one that was noted
  elseif cancelled and Change.cancelled_to(id) >= one.generation then
    Move.end_cancelled(id, now_ms)
  else
    if is_noted then
      Change.begin_anew(id, history_max)
    end
    local retry_ms = redis.call('ZSCORE', K.tomb, 'r' .. id)
    local _, is_its = Tries.told_in(redis.call('HGET', K.tries, id) or '', one.generation)
    is_its = one.generation == 0 or is_its and Tries.last_of(id) > one.revision
    place_change(one, now_ms, is_its and tonumber(retry_ms or nil) or 0)
  end
  drop_notes_of(id)
end

-- Changes a job that is here. If it is in a hand only its row is exchanged: the outcome of an older attempt does not
-- count any more. Returns whether the job waits now.
local function place_again(one, row, now_ms, history_max)
  local id = one.id
  local set = redis.call('ZSCORE', K.ended, id) and K.ended or redis.call('ZSCORE', K.dead, id) and K.dead
  if Change.cancelled_to(id) < one.generation then
    redis.call('ZREM', K.tomb, 'c' .. id)  -- that was of an earlier content
  end
  if set then
    Counts.note_ends({id}, now_ms)  -- it has not ended, or has another end
    if not end_stands(one) and not meet_late_end(one, now_ms, history_max) then
      Change.begin_anew(id, history_max)
      local place = place_change(one, now_ms)
      if place ~= 'ended' or set ~= K.ended then
        redis.call('ZREM', set, id)
      end
      return place ~= 'ended'
    end
  elseif not About.hold(id) then
    Move.stop_waiting(id, Move.header(row) and row or one.row)
    return place_change(one, now_ms) ~= 'ended'
  end
  return false
end

-- Ends a job that waits, because its name went to another.
function Exchange.supersede(id, now_ms)
  Stands.watch(id)
  local row = redis.call('HGET', K.jobs, id)
  if row and not Move.has_ended(id) and not About.hold(id) then
    Move.end_cancelled(id, now_ms)
    Move.stop_waiting(id, row)
  end
end

-- Whether the name is this job's: it belongs to the job that the store gave it to last. But a job that it had under its
-- name in an earlier life may be acknowledged: one that this life only reserved the name for, and that may never come,
-- does not take it.
local function take_name(one, now_ms)
  local row = redis.call('HGET', K.names, one.name) or ''
  local revision, id, until_ms, digest = row:match('^(%d+) (%S+) (%d+) (%S*)$')
  if revision and tonumber(revision) > one.revision then
    local _, is_earlier = Forgotten.forgotten()
    if id == one.id or until_ms == '0' or not is_earlier(one.revision) then
      if id ~= one.id then
        redis.call('ZREM', K.tomb, 'p' .. one.id)
      end
      return id == one.id
    end
    digest = ''
  elseif id and id ~= one.id then
    Exchange.supersede(id, now_ms)
  end
  digest = one.digest ~= '' and one.digest or digest or ''
  redis.call('HSET', K.names, one.name, digits(one.revision) .. ' ' .. one.id .. ' 0 ' .. digest)
  redis.call('ZREM', K.tomb, 'n' .. one.name, 'p' .. one.id)
  return true
end

-- Whether a job that is not here was here in this life, and is deleted: its change comes too late, and begins nothing
-- anew. The journal tells in which life an edit or a retry got its revision, when the job was there. In a later life
-- the change may come before its job is replayed. A push (it has a digest) that tells in which life it got its name is
-- over when the name is not its own any more: another content has it, or it went with its job.
local function is_over(one)
  if one.life == '' or one.life ~= redis.call('HGET', K.life, 'id') then
    return false
  end
  return one.digest == '' or (redis.call('HGET', K.names, one.name) or ''):match('^%d+ (%S+) ') ~= one.id
end

-- A confirmation that came after its job was deleted (the other copy of it, which another daemon journaled, had come)
-- wrote the name anew, for a job that never comes: its own record, which begins nothing, takes it back. What a later
-- content of the job was promised stays.
local function drop_promise(one)
  local revision, id = (redis.call('HGET', K.names, one.name) or ''):match('^(%d+) (%S+) ')
  if id ~= one.id then
    redis.call('ZREM', K.tomb, 'p' .. one.id)
  elseif tonumber(revision) <= one.revision then
    redis.call('HDEL', K.names, one.name)
    redis.call('ZREM', K.tomb, 'n' .. one.name, 'p' .. one.id)
  end
end

-- An edit that another journal told first took the name without knowing the digest of what it edited: the same push
-- again would be another's.
local function learn_digest(one)
  local known = (redis.call('HGET', K.names, one.name) or ''):match('^%d+ (%S+) 0 $')
  if known == one.id then
    redis.call('HSET', K.names, one.name, redis.call('HGET', K.names, one.name) .. one.digest)
  end
end

-- Applies a change, and counts what it moves. Returns 1 when the job was not here before.
function Exchange.apply_change(one, now_ms, history_max)
  local id = one.id
  Change.go_on_above(one.revision)
  local row = redis.call('HGET', K.jobs, id)
  local revision, generation = Change.changed(id)
  if revision >= one.revision or not row and (one.was_here or is_over(one)) then
    if not row and one.name ~= '' then
      drop_promise(one)
    elseif row and one.digest ~= '' and one.revision == generation then
      learn_digest(one)
    end
    return 0
  end
  Stands.watch(id)
  local does_wait = true
  if one.name ~= '' and not take_name(one, now_ms) then
    -- Another has its name by now. But if it ran before that, it ended as it did.
    if row or not meet_end(one, now_ms) then
      Move.end_cancelled(id, now_ms)
    else
      drop_notes_of(id)
    end
    does_wait = false
  elseif row then
    does_wait = place_again(one, row, now_ms, history_max)
  else
    Exchange.place_unseen(one, now_ms, history_max)
  end
  Heads.write()
  redis.call('HSET', K.jobs, id, one.row)
  Expire.forget_expiry(id)
  Expire.note_expiry({id}, Move.has_ended(id) and 0 or one.expires_at_ms)
  if one.generation > generation then
    count_anew(one)
  end
  generation = math.max(generation, one.generation)
  generation = digits(generation)
  redis.call('HSET', K.generation, id, digits(one.revision) .. ':' .. generation .. (does_wait and '' or '!'))
  if one.follows then
    redis.call('HSETNX', K.generation, 'e' .. id, '0:0')
  end
  call.has_changes = true
  return row and 0 or 1
end
