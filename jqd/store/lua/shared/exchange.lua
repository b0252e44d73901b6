-- Applies changes of jobs: a push under its pusher's id, an edit, a retry. The latest content stays, in whatever order
-- changes, outcomes and cancels come.
local function place_change(change, now_ms, retry_ms)
  local cancelled = Change.cancelled_to(change.id)
  if cancelled > 0 and cancelled >= change.generation then
    Move.end_cancelled(change.id, now_ms)
    return 'ended'
  end
  local due_ms = math.max(change.eligible_at_ms, retry_ms or 0)  -- an edit after the failed attempt sets the date alone
  if due_ms > now_ms then
    redis.call('ZADD', K.later, due_ms, change.id)
    Counts.note_blocked(change.id, due_ms, now_ms)
    return 'later'
  end
  Move.add_ready(change.jobtype, change.priority, change.id, change.eligible_at_ms, change.generation)
  return 'ready'
end

-- Ends the job by an end that was noted late, if that is of this content. Returns whether it was. Of the older end only
-- a failure stays, as history.
local function meet_late_end(change, now_ms, history_max)
  local id, note = change.id, 'z' .. change.id
  local row = redis.call('HGET', K.outcome, note)
  if not row or Change.meant_for(row:sub(2)) < change.generation then
    return false
  end
  Change.begin_anew(id, history_max)
  redis.call('HSET', K.outcome, id, row:sub(2))
  Results.give_to_job(note, id)
  local set, other = K.ended, K.dead
  if row:sub(1, 1) == 'd' then
    set, other = other, set
  end
  redis.call('ZADD', set, Change.noted_end(id, now_ms), id)
  redis.call('ZREM', other, id)
  Change.forget_end(note)
  redis.call('ZREM', K.tombstones, note)
  Change.prefer_cancel(id, change.generation)
  return true
end

-- Counts the attempts of a content that begins anew: only its own. Earlier ones stay as history, behind an empty
-- outcome that says that none of its own has begun: it may expire.
local function count_anew(change)
  local row = redis.call('HGET', K.tries, change.id) or ''
  if not Move.has_begun(row) then
    row = row:sub(1, 4) .. row:sub(9)
  end
  if #row <= 4 then
    redis.call('HDEL', K.tries, change.id)
    return
  end
  local count, has_own = Tries.told_in(row, change.generation)
  redis.call('HSET', K.tries, change.id, struct.pack('>I4', count) .. (has_own and '' or '\0\0\0\0') .. row:sub(5))
end

-- Returns whether the job's end is of this content, or of a later one.
local function end_stands(change)
  local packed = redis.call('HGET', K.outcome, change.id) or ''
  if packed:sub(1, 1) == Move.CANCELLED then
    return Change.cancelled_to(change.id) >= change.generation
  elseif packed:sub(1, 1) == Move.CRASHED or packed:sub(1, 1) == Move.EXPIRED then
    return Change.began(change.id) >= change.generation  -- jqd ended the content that is here
  end
  return Change.meant_for(packed) >= change.generation
end

-- Ends the job by an end that was noted before it came, if that is of this content. Returns whether it was; else
-- whether another end was noted.
local function meet_end(change, now_ms)
  local id = change.id
  local ended, killed = unpack(redis.call('ZMSCORE', K.tombstones, 's' .. id, 'd' .. id))
  if not (ended or killed) or not end_stands(change) then
    return false, ended or killed
  end
  redis.call('ZADD', ended and K.ended or K.dead, Change.noted_end(id, now_ms), id)
  return true
end

local function drop_notes_of(id)
  redis.call('ZREM', K.tombstones, 's' .. id, 'd' .. id, 'c' .. id, 'r' .. id, 'o' .. id)
end

-- Puts a job where it belongs that was not here, whatever was noted of it. Notes count if they are of this content; for
-- generation 0 all do but the end of a later one. A noted retry sets the date.
function Exchange.place_unseen(change, now_ms, history_max)
  local id = change.id
  Counts.note_blocked(id, change.eligible_at_ms, now_ms)  -- its parents are to know of it in any case
  local hold = About.hold(id)
  if hold then
    About.come(id, hold, Parked.take_hold(change.jobtype, id, hold.fence))
    redis.call('ZREM', K.tombstones, 'r' .. id, 'o' .. id)
    if Change.cancelled_to(id) < change.generation then
      redis.call('ZREM', K.tombstones, 'c' .. id)  -- the cancel was of an earlier content
    end
    return
  end
  local cancelled = redis.call('ZSCORE', K.tombstones, 'c' .. id)
  local is_over, is_noted = meet_end(change, now_ms)
  if is_over then
    if cancelled then
      Change.prefer_cancel(id, change.generation)
    end
  elseif change.generation > 0 and meet_late_end(change, now_ms, history_max) then
    -- ended by a later end than the one that was noted
  elseif cancelled and Change.cancelled_to(id) >= change.generation then
    Move.end_cancelled(id, now_ms)
  else
    if is_noted then
      Change.begin_anew(id, history_max)
    end
    local retry_ms = redis.call('ZSCORE', K.tombstones, 'r' .. id)
    local _, is_its = Tries.told_in(redis.call('HGET', K.tries, id) or '', change.generation)
    is_its = change.generation == 0 or is_its and Tries.last_of(id) > change.revision
    place_change(change, now_ms, is_its and tonumber(retry_ms or nil) or 0)
  end
  drop_notes_of(id)
end

-- Changes a job that is here. A held job gets the new row only: the outcome of the older content will not count.
-- Returns whether the job waits now.
local function place_again(change, row, now_ms, history_max)
  local id = change.id
  local set = redis.call('ZSCORE', K.ended, id) and K.ended or redis.call('ZSCORE', K.dead, id) and K.dead
  if Change.cancelled_to(id) < change.generation then
    redis.call('ZREM', K.tombstones, 'c' .. id)  -- the cancel was of an earlier content
  end
  if set then
    Counts.note_ends({id}, now_ms)  -- it goes on, or has another end
    if not end_stands(change) and not meet_late_end(change, now_ms, history_max) then
      Change.begin_anew(id, history_max)
      local place = place_change(change, now_ms)
      if place ~= 'ended' or set ~= K.ended then
        redis.call('ZREM', set, id)
      end
      return place ~= 'ended'
    end
  elseif not About.hold(id) then
    Move.stop_waiting(id, Move.header(row) and row or change.row)
    return place_change(change, now_ms) ~= 'ended'
  end
  return false
end

-- Ends a waiting job whose name was given to another job.
function Exchange.supersede(id, now_ms)
  Stands.watch(id)
  local row = redis.call('HGET', K.jobs, id)
  if row and not Move.has_ended(id) and not About.hold(id) then
    Move.end_cancelled(id, now_ms)
    Move.stop_waiting(id, row)
  end
end

-- Returns whether the name is this job's: it is the job's that the store gave it to last. But a job that had the name
-- in an earlier life may be acknowledged: it keeps the name from a job for which this life only reserved it.
local function take_name(change, now_ms)
  local row = redis.call('HGET', K.names, change.name) or ''
  local revision, id, until_ms, digest = row:match('^(%d+) (%S+) (%d+) (%S*)$')
  if revision and tonumber(revision) > change.revision then
    local _, is_earlier = Forgotten.forgotten()
    if id == change.id or until_ms == '0' or not is_earlier(change.revision) then
      if id ~= change.id then
        redis.call('ZREM', K.tombstones, 'p' .. change.id)
      end
      return id == change.id
    end
    digest = ''
  elseif id and id ~= change.id then
    Exchange.supersede(id, now_ms)
  end
  digest = change.digest ~= '' and change.digest or digest or ''
  redis.call('HSET', K.names, change.name, digits(change.revision) .. ' ' .. change.id .. ' 0 ' .. digest)
  redis.call('ZREM', K.tombstones, 'n' .. change.name, 'p' .. change.id)
  return true
end

-- Returns whether a missing job was here in this life and is deleted, so that its change comes too late. A change tells
-- the life in which it got its number; in a later life it may come before its job. A push (it has a digest) is also
-- over when another content has its name, or the name went with its job.
local function is_over(change)
  if change.life == '' or change.life ~= redis.call('HGET', K.life, 'id') then
    return false
  end
  return change.digest == '' or (redis.call('HGET', K.names, change.name) or ''):match('^%d+ (%S+) ') ~= change.id
end

-- Takes a name back from a deleted job. Its confirmation came after the deletion (another daemon had journaled the job,
-- too) and wrote the name anew, for a job that never comes. A name promised to a later content stays.
local function drop_promise(change)
  local revision, id = (redis.call('HGET', K.names, change.name) or ''):match('^(%d+) (%S+) ')
  if id ~= change.id then
    redis.call('ZREM', K.tombstones, 'p' .. change.id)
  elseif tonumber(revision) <= change.revision then
    redis.call('HDEL', K.names, change.name)
    redis.call('ZREM', K.tombstones, 'n' .. change.name, 'p' .. change.id)
  end
end

-- Adds the digest to a name. An edit that another journal brought first took the name without it, so that the same push
-- would not be known.
local function learn_digest(change)
  local known = (redis.call('HGET', K.names, change.name) or ''):match('^%d+ (%S+) 0 $')
  if known == change.id then
    redis.call('HSET', K.names, change.name, redis.call('HGET', K.names, change.name) .. change.digest)
  end
end

-- Applies a change and counts it. Returns 1 if the job was not here before, else 0.
function Exchange.apply_change(change, now_ms, history_max)
  local id = change.id
  Change.go_on_above(change.revision)
  local row = redis.call('HGET', K.jobs, id)
  local revision, generation = Change.changed(id)
  if revision >= change.revision or not row and (change.was_here or is_over(change)) then
    if not row and change.name ~= '' then
      drop_promise(change)
    elseif row and change.digest ~= '' and change.revision == generation then
      learn_digest(change)
    end
    return 0
  end
  Stands.watch(id)
  local does_wait = true
  if change.name ~= '' and not take_name(change, now_ms) then
    -- Another job has its name by now. But if it ran before that, it ended as it did.
    if row or not meet_end(change, now_ms) then
      Move.end_cancelled(id, now_ms)
    else
      drop_notes_of(id)
    end
    does_wait = false
  elseif row then
    does_wait = place_again(change, row, now_ms, history_max)
  else
    Exchange.place_unseen(change, now_ms, history_max)
  end
  Index.write()
  redis.call('HSET', K.jobs, id, change.row)
  Expire.forget_expiry(id)
  Expire.note_expiry({id}, Move.has_ended(id) and 0 or change.expires_at_ms)
  if change.generation > generation then
    count_anew(change)
  end
  generation = math.max(generation, change.generation)
  generation = digits(generation)
  redis.call('HSET', K.generation, id, digits(change.revision) .. ':' .. generation .. (does_wait and '' or '!'))
  if change.follows then
    redis.call('HSETNX', K.generation, 'e' .. id, '0:0')
  end
  call.has_changes = true
  return row and 0 or 1
end
