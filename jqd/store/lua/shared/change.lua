-- Revisions and generations of jobs: whatever order contents, outcomes and cancels come in, the same content stays. The
-- revision is the number of a job's latest change, its generation that of the latest change that was no mere edit.
-- exchange.lua applies changes.
--
--     generation   hash  id → "revision:generation"; "!" behind it: the latest change found the job held or ended, and
--                        left it so
--                        "c<id>" → the generation up to which it was cancelled
--                        "e<id>" → "revision:until_ms:ttl_ms" of a change to come; it stays, and 0:0 is enough, to say
--                        that journals may hold several contents
--
-- When a job with an "e" row is deleted, its revision stays as long as the note `o`: no content up to it begins the job
-- anew. Revisions of an earlier store may be ahead, if the clock was set back: the sequence goes on above all it meets.
function starts.has_changes() return is_here('generation') end

-- Returns revision and generation of a job; 0, 0: it is as it was pushed.
function Change.changed(id)
  local row = call.has_changes and redis.call('HGET', K.generation, id)
  if not row then
    return 0, 0
  end
  local revision, generation = row:match('^(%d+):(%d+)!?$')
  return tonumber(revision) or 0, tonumber(generation) or 0
end

-- Returns the generation of a job; 0: it is as it was pushed.
function Change.began(id)
  local _, generation = Change.changed(id)
  return generation
end

-- Returns up to which generation a job was cancelled.
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

-- Notes that a job was cancelled up to that generation.
function Change.note_cancel(id, to)
  Change.go_on_above(to)
  if to > Change.cancelled_to(id) then
    redis.call('HSET', K.generation, 'c' .. id, string.format('%.0f', to))
    call.has_changes = true
  end
end

-- Returns whether a later content was acknowledged under the job's name and is still to come.
function Change.awaits_newer(id, row)
  local name = call.has_changes and row and Move.job_name(row) or ''
  if name == '' then
    return false
  end
  local given, named, until_ms = (redis.call('HGET', K.names, name) or ''):match('^(%d+) (%S+) (%d+) ')
  return named == id and until_ms == '0' and tonumber(given) > Change.changed(id)
end

-- Notes that a change got that number and is to come within that time.
function Change.await_change(id, revision, ttl_ms, now_ms)
  redis.call('HSET', K.generation, 'e' .. id, revision .. ':' .. digits(now_ms + ttl_ms) .. ':' .. digits(ttl_ms))
end

-- Returns whether a change that got its number has not come.
function Change.is_awaited(id, now_ms)
  local row = call.has_changes and redis.call('HGET', K.generation, 'e' .. id) or ''
  local revision, until_ms, ttl_ms = row:match('^(%d+):(%d+):(%d+)$')
  local left_ms = revision and tonumber(revision) > Change.changed(id) and tonumber(until_ms) - now_ms or 0
  return left_ms > 0 and left_ms <= tonumber(ttl_ms)  -- above ttl_ms the clock was set back
end

-- Frees the names of jobs that are deleted, and drops their generations.
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
      redis.call('ZADD', K.tombstones, now_ms, 'o' .. id)
      redis.call('HDEL', K.generation, 'c' .. id, 'e' .. id)
    else
      redis.call('HDEL', K.generation, id, 'c' .. id)
    end
  end
end

-- Returns the outcome of that generation as `outcome` keeps it.
function Change.meant_so(generation, packed)
  return Move.MEANT .. generation .. ':' .. packed
end

-- Returns the latest generation of which a kept outcome may be. One of the first content names none: the content that
-- ran under a fence is older than later changes. Fence 0: the job ended without running, and its journal repeats that.
function Change.meant_for(kept)
  local mark, _, generation = Outcomes.parts(kept)
  return mark == Move.MEANT and generation or math.max(Change.fence_of(kept) or 0, 1) - 1
end

-- Returns the fence in a kept outcome, nil if it is a mere mark.
function Change.fence_of(kept) return tonumber(Outcomes.values(kept, 2)[2]) end

-- Returns when an attempt ended its job: as its daemon says, but neither before its claim nor after now, by the store's
-- clock. So jobs that are applied again keep their age, and are deleted in the order in which they ended.
function Change.ended_at(kept, now_ms)
  local FENCE, FINISHED, MICROS = 2, 10, 1000  -- places in an outcome (job.Outcome)
  local values = Outcomes.values(kept, FINISHED)
  local fence, finished_ms = tonumber(values[FENCE]), tonumber(values[FINISHED])
  if not fence or not finished_ms then
    return now_ms
  end
  return math.min(now_ms, math.max(finished_ms, math.floor(fence / MICROS)))
end

-- Returns when a job ended whose end was noted before it came.
function Change.noted_end(id, now_ms)
  return Change.ended_at(redis.call('HGET', K.outcome, id) or '', now_ms)
end

-- Forgets the end of a job, or of a note `z`.
function Change.forget_end(id)
  redis.call('HDEL', K.outcome, id)
  Results.drop({id})
  redis.pcall('HDEL', K.leases, 'p' .. id)
end

-- Returns a kept outcome without the mark of a cancel, nil unless it is a failure; the generation it names, or 0.
function Change.failure_in(kept)
  local FAILED, DEAD_END = 2, 3  -- fates (job.Fate) of an outcome: its third value
  local mark, _, generation = Outcomes.parts(kept)
  local fate = Outcomes.values(kept, 3)[3]
  return (fate == FAILED or fate == DEAD_END) and (mark == Move.CANCELLED and kept:sub(2) or kept) or nil, generation
end

-- Returns whether a kept end gives way to a success of that generation (0: of the first content), as that job did run:
-- a cancel and deaths in flight always, a failure if it is of the same content or an earlier one, for the change
-- between them may be in no journal any more. To be asked only if no later content is here.
function Change.gives_way(kept, generation)
  local mark = Outcomes.parts(kept)
  local failed, meant = Change.failure_in(kept)
  return mark ~= '' and mark ~= Move.MEANT or failed ~= nil and meant <= generation
end

-- Forgets the end of a content that is replaced; a failure becomes history.
function Change.begin_anew(id, history_max)
  local failed = Change.failure_in(redis.call('HGET', K.outcome, id) or '')
  Change.forget_end(id)
  if failed then
    Tries.add_try(id, 0, failed, history_max)
  end
end

-- Notes, as `z`, an end of a later content than the one that ended the job: a change that begins the job anew is still
-- to come. The latest such end stays. Returns whether it was noted: then the caller keeps its result under that name.
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
  Change.forget_end(note)  -- of an earlier one, with its result
  redis.call('HSET', K.outcome, note, (dead and 'd' or 's') .. kept)
  redis.call('ZADD', K.tombstones, now_ms, note)
  return true
end

-- Ends a failed job as cancelled, if its noted cancel applies to this generation and the content that failed, whichever
-- came first. Not while a noted success of a content that was cancelled, too, waits for that content, which it ends.
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
