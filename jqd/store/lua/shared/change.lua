-- Contents of jobs that the store agreed to, so that any order of arrival ends with the same one. A row of `generation`
-- is "revision:generation": the number of the latest change, and of the latest that was no mere edit; "!" behind them:
-- the latest found the job in a hand or ended, and left it there. Field "c<id>": up to which generation it was
-- cancelled; "e<id>": "revision:until_ms:ttl_ms" of a change that is about to come. It stays when the change is there,
-- or is 0:0, for it says that journals may hold several contents of the job. When such a job is deleted its row stays
-- as long as the note `o`: a content of no greater revision that comes after that begins nothing anew. Revisions of a
-- store that is gone may be ahead of this one's, if its clock was set back. The sequence goes on above all revisions it
-- meets.
-- exchange.lua brings changes.
function starts.has_changes() return is_here('generation') end

-- Revision and generation of a job, 0 and 0 for one that is as it was pushed.
function Change.changed(id)
  local row = call.has_changes and redis.call('HGET', K.generation, id)
  if not row then
    return 0, 0
  end
  local revision, generation = row:match('^(%d+):(%d+)!?$')
  return tonumber(revision) or 0, tonumber(generation) or 0
end

-- The generation of a job, 0 for one that is as it was pushed.
function Change.began(id)
  local _, generation = Change.changed(id)
  return generation
end

-- Up to which generation its cancel was asked.
function Change.cancelled_to(id)
  return tonumber(call.has_changes and redis.call('HGET', K.generation, 'c' .. id) or nil) or 0
end

function Change.go_on_above(revision)
  if revision > 0 then
    call.highest = call.highest or tonumber(redis.call('GET', K.fence) or '0') or 0
    if revision > call.highest then
      call.highest = revision
      redis.call('SET', K.fence, digits(revision))
    end
  end
end

-- Its cancel was asked, up to that generation.
function Change.note_cancel(id, to)
  Change.go_on_above(to)
  if to > Change.cancelled_to(id) then
    redis.call('HSET', K.generation, 'c' .. id, string.format('%.0f', to))
    call.has_changes = true
  end
end

-- Whether a later content of this job was acknowledged under its name, and is on its way: the content that is here is
-- not the last.
function Change.awaits_newer(id, row)
  local name = call.has_changes and row and Move.job_name(row) or ''
  if name == '' then
    return false
  end
  local given, named, until_ms = (redis.call('HGET', K.names, name) or ''):match('^(%d+) (%S+) (%d+) ')
  return named == id and until_ms == '0' and tonumber(given) > Change.changed(id)
end

-- A change was given that number, and comes within that time.
function Change.await_change(id, revision, ttl_ms, now_ms)
  redis.call('HSET', K.generation, 'e' .. id, revision .. ':' .. digits(now_ms + ttl_ms) .. ':' .. digits(ttl_ms))
end

-- Whether a change that was given its number has not come.
function Change.is_awaited(id, now_ms)
  local row = call.has_changes and redis.call('HGET', K.generation, 'e' .. id) or ''
  local revision, until_ms, ttl_ms = row:match('^(%d+):(%d+):(%d+)$')
  local left_ms = revision and tonumber(revision) > Change.changed(id) and tonumber(until_ms) - now_ms or 0
  return left_ms > 0 and left_ms <= tonumber(ttl_ms)  -- more than was ever promised: the clock was set back
end

-- Frees the names of jobs that are deleted.
function Change.drop_changes(ids, rows, now_ms)
  if not call.has_changes and redis.call('EXISTS', K.names) == 0 then
    return
  end
  for at, id in ipairs(ids) do
    local name = rows[at] and Move.job_name(rows[at])
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

-- The outcome of that generation as `outcome` keeps it.
function Change.meant_so(generation, packed)
  return Move.MEANT .. generation .. ':' .. packed
end

-- The latest generation that a kept outcome may be of. Outcomes of the first content name none: a content that ran
-- under a fence is older than any change that came later; one that ended without running, whose journal tells so again,
-- has fence 0.
function Change.meant_for(kept)
  local mark, _, generation = Outcomes.parts(kept)
  return mark == Move.MEANT and generation or math.max(Change.fence_of(kept) or 0, 1) - 1
end

-- Of which claim a kept outcome is; of a mere mark none.
function Change.fence_of(kept) return tonumber(Outcomes.values(kept, 2)[2]) end

-- When an attempt ended its job, by its kept outcome: as its daemon says, but not before its claim nor after now, by
-- the store's clock. What is told again keeps its age so, and what is deleted first is what ended first, in whatever
-- order it was told.
function Change.ended_at(kept, now_ms)
  local FENCE, FINISHED, MICROS = 2, 10, 1000  -- places in an outcome (job.Outcome)
  local values = Outcomes.values(kept, FINISHED)
  local fence, finished_ms = tonumber(values[FENCE]), tonumber(values[FINISHED])
  if not fence or not finished_ms then
    return now_ms
  end
  return math.min(now_ms, math.max(finished_ms, math.floor(fence / MICROS)))
end

-- Where a job lies among the ended whose ending was noted before it came: one with a kept result as if it ended when
-- that goes.
function Change.noted_end(id, now_ms)
  local drop_at_ms = tonumber(redis.call('ZSCORE', K.results, id) or nil)
  return drop_at_ms or Change.ended_at(redis.call('HGET', K.outcome, id) or '', now_ms)
end

-- Its ending is forgotten. Of a job, or of a note `z`.
function Change.forget_end(id)
  redis.call('HDEL', K.outcome, id)
  Results.drop({id})
  redis.pcall('HDEL', K.leases, 'p' .. id)
end

-- A kept outcome, without the mark of a cancel, if it is a failure, else nil; the generation it names, 0 for none.
function Change.failure_in(kept)
  local FAILED, DEAD_END = 2, 3  -- fates (job.Fate) of an outcome: its third value
  local mark, _, generation = Outcomes.parts(kept)
  local fate = Outcomes.values(kept, 3)[3]
  return (fate == FAILED or fate == DEAD_END) and (mark == Move.CANCELLED and kept:sub(2) or kept) or nil, generation
end

-- Whether an ending, as it is kept, gives way to a success of that generation (0: of the first content): who succeeded
-- did run. A cancel and deaths in flight do always, a failure if it is of the same content, or of an earlier one: the
-- change that began the job anew may be in no journal any more. The caller knows of no later content that is here.
function Change.gives_way(kept, generation)
  local mark = Outcomes.parts(kept)
  local failed, meant = Change.failure_in(kept)
  return mark ~= '' and mark ~= Move.MEANT or failed ~= nil and meant <= generation
end

-- Forgets the end of a content that is replaced: if it failed, the failure stays in the job's history.
function Change.begin_anew(id, history_max)
  local failed = Change.failure_in(redis.call('HGET', K.outcome, id) or '')
  Change.forget_end(id)
  if failed then
    Tries.add_try(id, 0, failed, history_max)
  end
end

-- Notes an ending (`z`, of the latest such) that came while the job lay among the ended already, and that is of a later
-- content than the one that ended: a change that begins the job anew is still on its way. Its result lies under the
-- note's name, too, and the caller puts it there. Returns whether the ending was noted.
function Change.note_late_end(id, kept, dead, now_ms)
  local note = 'z' .. id
  local row, late = unpack(redis.call('HMGET', K.outcome, id, note))
  row = row or ''
  local known = row:sub(1, 1) == Move.CANCELLED and Change.cancelled_to(id) or Change.meant_for(row)
  if late then
    known = math.max(known, Change.meant_for(late:sub(2)))
  end
  local failed, generation = Change.failure_in(kept)
  local wins = late and not failed and Change.gives_way(late:sub(2), generation)
  if Change.meant_for(kept) <= known and not wins then
    return false
  end
  Change.forget_end(note)  -- with the result of an earlier one
  redis.call('HSET', K.outcome, note, (dead and 'd' or 's') .. kept)
  redis.call('ZADD', K.tomb, now_ms, note)
  return true
end

-- Ends a job as cancelled that lies among the ended by a failure, if a cancel of it (the caller knows of one) is meant
-- for this generation and for the content that failed: whatever came first. Not so while the success of a content that
-- was cancelled as well waits for that content, which it ends.
function Change.prefer_cancel(id, generation)
  local kept, late = unpack(redis.call('HMGET', K.outcome, id, 'z' .. id))
  if not kept or kept:sub(1, 1) == Move.CANCELLED then
    return
  end
  local to, failed, meant = Change.cancelled_to(id), Change.failure_in(kept)
  if not failed or to < math.max(generation, meant) then
    return
  elseif late and not Change.failure_in(late:sub(2)) and Change.meant_for(late:sub(2)) <= to then
    return
  end
  Move.end_cancelled(id, Move.has_ended(id), failed)
  redis.call('ZREM', K.dead, id)
end
