-- Applies outcomes of a journal and moves its position, in one step. Whatever order outcomes come in, a job ends the
-- same way: an outcome of its present claim counts, one of an earlier claim only if it is a success or the claim is
-- forgotten (forgotten.lua), and one of a job that is not here is noted in `tombstones` until the job comes.
-- ARGV     1    now_ms
--          2–4  position field, from, to
--          5    result_ttl_ms
--          6    history_max
--          7    1 if an earlier process of that daemon wrote them: it may have died before its workers had their jobs
--          8    1 if followers that outcomes brought were left out
--          9    number of words of groups of followers
--          10…  these groups (arrive.lua)
--          then groups of outcomes that share: fate (job.Fate), fence, jobtype, extra. Each is these four, a count, and
--               so many times:
--               * id, or "id:generation" of the content that ran
--               * the packed outcome
--               * of fate 6 the jobs that follow, for the outbox; or "=", of a copy with its positions "first last":
--               its followers are in this call; or nothing
--               Extra is: the result to keep, or nothing; of a success with followers or a log (fate 6) "bytes of that
--               result", the result, and the log; of a RETRY "attempt priority delay_ms", then in the next line the
--               log; of any failure the log; of a hand-over "seconds of silence allowed, worker"
-- Returns  places, from 0, of outcomes that came too late to change anything; nil if all were applied before: the
--          answer was lost
-- Errors   JQD_POSITION, JQD_STORE_CHANGED, JQD_BAD_VALUE; none after the first write
-- Cost     O(outcomes · members · log jobs), and the bytes; endings in flight are written in one go
register('apply_outcomes', {'allow-oom'}, function()
  local now_ms, now_us = clock(ARGV[1])
  local field, from, to = ARGV[2], ARGV[3], ARGV[4]
  local history_max = tonumber(ARGV[6])

  if not Position.at_position(field, from, to) then
    return false
  end
  local FOLLOWERS = 10  -- the argument where their words begin
  local behind = FOLLOWERS + tonumber(ARGV[FOLLOWERS - 1])
  local followers, follower_ids = Arrive.read_groups(FOLLOWERS, behind, Arrive.FIELDS)
  local outcomes, ids, groups = Outcomes.read_outcomes(behind)
  local holds, twice = About.look(ids)
  Forgotten.tell_of(outcomes, holds)
  local is_forgotten, is_earlier = Forgotten.forgotten()
  if ARGV[8] == '1' then
    Gone.note_gone(field, from, to)
  end

  -- Ends of jobs in flight are collected and written together: one call for many. `just_ended`: jobs that an outcome of
  -- this call ended and another may name.
  local just_ended, brought, write_collected, keep_result, finish, retry = {}, {}
  do
    local has_notes = is_here('tombstones')
    local result_ttl_ms = tonumber(ARGV[5])
    local ended, dead, packed, cleared, waits = {}, {}, {}, {}, {}

    function write_collected()
      local adds = {
        {'ZADD', K.ended, ended}, {'ZADD', K.dead, dead}, {'HSET', K.outcome, packed}, {'ZADD', K.outbox, waits},
        {'ZREM', K.tombstones, cleared},
      }
      for _, add in ipairs(adds) do
        if #add[3] > 0 then
          redis.call(add[1], add[2], unpack(add[3]))
        end
      end
      ended, dead, packed, cleared, waits = {}, {}, {}, {}, {}
    end

    -- Puts the followers of an end that counts (not of a note) into the outbox, and keeps its result, under the job's
    -- id or that of the note.
    function keep_result(outcome, name)
      if outcome.follows and not name then
        waits[#waits + 1], waits[#waits + 2] = now_ms, outcome.id .. ' ' .. outcome.follows
      elseif outcome.brings and not name then
        brought[outcome.place] = outcome
      end
      if outcome.fate == Outcomes.SUCCEEDED and outcome.result ~= '' then
        Results.put(name or outcome.id, outcome.result, outcome.date_ms + result_ttl_ms)
      end
    end

    -- Returns whether a job ends as cancelled: a cancel was noted, it did not succeed, and it is not of a later
    -- content, whose change is still to come.
    local function ends_cancelled(outcome)
      return has_notes and outcome.fate ~= Outcomes.SUCCEEDED and redis.call('ZSCORE', K.tombstones, 'c' .. outcome.id)
        and Change.cancelled_to(outcome.id) >= tonumber(outcome.generation or 0)
    end

    function finish(outcome, hold)
      local id, cancelled = outcome.id, ends_cancelled(outcome)
      if outcome.is_plain and cancelled then
        Counts.moved(outcome.jobtype, 'running', 'cancelled', id)
      elseif outcome.is_plain then
        local plain = outcome.plain
        plain[#plain + 1] = id
      end
      local set = outcome.fate == Outcomes.DEAD and not cancelled and dead or ended
      packed[#packed + 1], packed[#packed + 2] = id, cancelled and Move.CANCELLED .. outcome.kept or outcome.kept
      keep_result(outcome)
      set[#set + 1], set[#set + 2] = outcome.date_ms, id
      Logs.keep(outcome, outcome.fate == Outcomes.SUCCEEDED)
      if has_notes then
        cleared[#cleared + 1] = 'c' .. id
      end
      if hold then
        About.leave(id, hold)
      end
      just_ended[id] = not outcome.is_plain or nil
    end

    function retry(outcome, hold)
      local failures, how = Tries.add_try(outcome.id, outcome.attempt, outcome.kept, history_max), 'cancelled'
      Logs.keep(outcome)
      if ends_cancelled(outcome) then
        Move.end_cancelled(outcome.id, outcome.date_ms, outcome.kept)
      else
        local jobtype, priority, due_ms, date_ms = outcome.jobtype, outcome.priority, now_ms + outcome.delay_ms, 0
        if due_ms <= now_ms or Change.changed(outcome.id) > 0 then
          -- Its row has the queue. And if the job was edited while it ran, the row is later than the outcome.
          local now_jobtype, now_priority, eligible_at_ms = Move.header(redis.call('HGET', K.jobs, outcome.id) or '')
          jobtype, priority = now_jobtype or jobtype, now_priority or priority
          date_ms = eligible_at_ms or 0
          due_ms = math.max(due_ms, date_ms)
        end
        if due_ms > now_ms then
          redis.call('ZADD', K.later, due_ms, outcome.id)
          Counts.note_blocked(outcome.id, due_ms, now_ms)
        else
          Move.add_ready(jobtype, priority, outcome.id, date_ms)
        end
        how = failures > 0 and 'retrying' or due_ms > now_ms and Counts.date_stands(due_ms) or 'waiting'
      end
      if outcome.is_plain then
        Counts.moved(outcome.jobtype, 'running', how, outcome.id)
      end
      About.leave(outcome.id, hold)
    end
  end

  -- For outcomes of jobs that have ended, have another holder or none by now, or have not come yet.
  local end_late, note_try, note, note_early, finish_late, succeed_after_all
  do
    -- Counts a failed attempt of a job that this outcome does not change otherwise. Returns whether the attempt was not
    -- known, and no later one is. If the job is not here, its tries are dropped with the note `r`.
    function note_try(outcome)
      local _, is_new, is_latest = Tries.add_try(outcome.id, outcome.attempt, outcome.kept, history_max)
      if redis.call('HEXISTS', K.jobs, outcome.id) == 0
        and not redis.call('ZSCORE', K.tombstones, 'r' .. outcome.id) then
        redis.call('ZADD', K.tombstones, now_ms, 'r' .. outcome.id)
      end
      return is_new and is_latest
    end

    -- Notes an end of a job that has ended: it may be of a later content, whose change is still to come.
    function end_late(outcome)
      if Change.note_late_end(outcome.id, outcome.kept, outcome.fate == Outcomes.DEAD, now_ms) then
        keep_result(outcome, 'z' .. outcome.id)
      end
    end

    -- Returns whether a success replaces another end of its own content or of an earlier one: cancelled, failed, or
    -- given up for deaths. The job did run, so the success wins in any order.
    local function did_run(outcome)
      return outcome.fate == Outcomes.SUCCEEDED and Change.gives_way(redis.call('HGET', K.outcome, outcome.id) or '',
        tonumber(outcome.generation or 0))
    end

    -- Drops an end that gives way. One of an earlier content becomes history, as if a change had begun the job anew.
    local function replace_end(outcome)
      local kept = redis.call('HGET', K.outcome, outcome.id)
      if kept and select(2, Change.failure_in(kept)) < tonumber(outcome.generation or 0) then
        Change.begin_anew(outcome.id, history_max)
      end
    end

    -- Notes the outcome of a job that has not come yet. Returns whether it says anything new: the first end stays, but
    -- a success beats a failure.
    function note(outcome)
      local ends = redis.call('ZMSCORE', K.tombstones, 's' .. outcome.id, 'd' .. outcome.id)
      if (ends[1] or ends[2]) and not did_run(outcome) then
        if outcome.fate == Outcomes.RETRY then
          note_try(outcome)
        else
          end_late(outcome)
        end
        return false
      elseif outcome.fate == Outcomes.RETRY then
        if note_try(outcome) then
          Logs.keep(outcome)
          redis.call('ZADD', K.tombstones, now_ms + outcome.delay_ms, 'r' .. outcome.id)
        end
      else
        Logs.keep(outcome, outcome.fate == Outcomes.SUCCEEDED)
        replace_end(outcome)
        keep_result(outcome)
        redis.call('HSET', K.outcome, outcome.id, outcome.kept)
        redis.call('ZREM', K.tombstones, 'd' .. outcome.id)
        redis.call('ZADD', K.tombstones, now_ms, (outcome.fate == Outcomes.DEAD and 'd' or 's') .. outcome.id)
      end
      return true
    end

    -- Ends a job by a success of an earlier attempt, as the job did run, or by any end of a forgotten claim.
    function finish_late(outcome, hold)
      finish(outcome, hold)
      write_collected()
      Move.stop_waiting(outcome.id, redis.call('HGET', K.jobs, outcome.id))
    end

    -- Ends a job that has ended otherwise, by a success that wins. Returns whether it does.
    function succeed_after_all(outcome)
      if Change.began(outcome.id) > outcome.meant or not did_run(outcome) then
        return false
      end
      redis.call('ZREM', K.dead, outcome.id)
      replace_end(outcome)
      keep_result(outcome)
      redis.call('ZADD', K.ended, outcome.date_ms, outcome.id)
      redis.call('HSET', K.outcome, outcome.id, outcome.kept)
      return true
    end

    -- Notes the outcome of a job that is held and has not come yet; it is held no more.
    function note_early(outcome, hold)
      About.leave(outcome.id, hold)
      return note(outcome)
    end
  end

  -- Returns whether an outcome counts that is not of the present claim: a success, unless a later content is held, for
  -- the job did run; any outcome of a forgotten claim, unless a later claim is known; and a failed attempt of the same
  -- content as a forgotten claim, for the job may come back from that claim untried.
  local counts
  do
    -- Returns the generation of the content that is held, 0 if it is not known.
    local function generation_of(hold) return tonumber(hold and hold.generation or 0) end

    function counts(outcome, hold)
      if outcome.fate == Outcomes.SUCCEEDED and generation_of(hold) <= outcome.meant then
        return true
      end
      local is_behind = hold and hold.fence > outcome.fence
      if is_forgotten(outcome.fence) and not is_behind then
        return true
      elseif outcome.fate ~= Outcomes.RETRY or generation_of(hold) > outcome.meant then
        return false
      end
      -- Or the store went back to the time of that claim and was told of a later one first: it has forgotten what came
      -- of this one.
      return is_forgotten(outcome.fence) or is_earlier(outcome.fence)
        and is_forgotten(is_behind and hold.fence or Tries.last_of(outcome.id))
    end
  end

  -- Returns whether an outcome is of this hold: of its claim, or of a later one that is forgotten, while the store was
  -- told again of the earlier one, which its worker had given back.
  local function is_of(outcome, hold)
    return hold.fence == outcome.fence
      or hold.sysid == About.WORKERS and hold.fence < outcome.fence and is_forgotten(outcome.fence)
  end

  -- Most outcomes are of jobs in flight that did not change since they were claimed, or whose last change is what ran:
  -- these are *plain*. The state of any other job is looked at before and after, for the counts.
  do
    local revised = call.has_changes and #ids > 0 and redis.call('HMGET', K.generation, unpack(ids)) or {}
    for at, outcome in ipairs(outcomes) do
      local hold = holds[outcome.id]
      -- an outcome of an earlier life may be told again
      outcome.date_ms = is_earlier(outcome.fence) and Change.ended_at(outcome.kept, now_ms) or now_ms
      local is_this_claim = hold and hold.fence == outcome.fence and not twice[outcome.id] and not hold.is_early
      local is_known = not revised[at]
        or outcome.generation and revised[at] == outcome.generation .. ':' .. outcome.generation
      outcome.is_plain = is_this_claim and is_known and outcome.jobtype ~= ''
      if not outcome.is_plain and not (is_this_claim and outcome.fate == Outcomes.ENTRUSTED) then
        Stands.watch(outcome.id)
      end
    end
  end

  local stale = {}
  -- Returns whether an outcome of an earlier life counted before: this journal's copy may have the followers that the
  -- other's lacks (get_ends), or a change that began the job anew is told before it.
  local function is_told_again(outcome)
    if not is_earlier(outcome.fence) then
      return false
    end
    local kept = redis.call('HGET', K.outcome, outcome.id)
    return kept and Change.fence_of(kept) == outcome.fence or Change.began(outcome.id) > outcome.meant
  end

  -- Notes that an outcome changes nothing. But if it may have counted before, its followers may be in no journal yet.
  local function too_late(outcome)
    table.insert(stale, outcome.place)
    if not (outcome.follows or outcome.brings) or not (is_forgotten(outcome.fence) or is_told_again(outcome)) then
      return
    elseif outcome.brings then
      brought[outcome.place] = outcome
    else
      redis.call('ZADD', K.outbox, now_ms, outcome.id .. ' ' .. outcome.follows)
    end
  end

  local leases_met = {}  -- of outcomes of jobs that workers hold: fence → whether one was under that fence
  for at, outcome in ipairs(outcomes) do
    local hold = holds[outcome.id]
    outcome.place = at - 1
    if hold and hold.sysid == About.WORKERS and outcome.fate ~= Outcomes.ENTRUSTED then
      leases_met[hold.fence] = leases_met[hold.fence] or hold.fence == outcome.fence
    end
    if just_ended[outcome.id] and outcome.fate ~= Outcomes.RETRY then
      write_collected()  -- how it ended counts below: this outcome may be of a later content, which is not here yet
      just_ended[outcome.id] = nil
    end
    if outcome.fate == Outcomes.ENTRUSTED then
      if Handover.may_entrust(outcome, hold, is_forgotten, is_earlier) then
        holds[outcome.id] = Handover.entrust(outcome, hold, now_us, ARGV[7] == '1' or is_earlier(outcome.fence))
      else
        table.insert(stale, outcome.place)
      end
    elseif hold and hold.is_early then
      local is_this_claim = is_of(outcome, hold)
      if not is_this_claim and not counts(outcome, hold) then
        too_late(outcome)
      elseif not is_this_claim and outcome.fate == Outcomes.RETRY then
        note_try(outcome)
      else
        holds[outcome.id] = nil
        if not note_early(outcome, hold) then
          too_late(outcome)
        end
      end
    elseif hold and is_of(outcome, hold) then
      if call.has_changes and not outcome.is_plain and Change.began(outcome.id) > outcome.meant then
        -- The content changed while the job ran: the outcome of the older one does not count, the newer one waits.
        Back.put_back(outcome.id, redis.call('HGET', K.jobs, outcome.id), now_ms, 'running', hold.fence)
        About.leave(outcome.id, hold)
        too_late(outcome)
      elseif outcome.fate == Outcomes.RETRY then
        retry(outcome, hold)
      else
        finish(outcome, hold)
      end
      holds[outcome.id] = nil
    elseif not hold and not just_ended[outcome.id] and redis.call('HEXISTS', K.jobs, outcome.id) == 0 then
      if not note(outcome) then
        too_late(outcome)
      end
    elseif not just_ended[outcome.id] and not Move.has_ended(outcome.id) and counts(outcome, hold)
        and Change.began(outcome.id) <= outcome.meant then
      if outcome.fate ~= Outcomes.RETRY then
        finish_late(outcome, hold)
        holds[outcome.id] = nil
      else
        note_try(outcome)
      end
    elseif just_ended[outcome.id] or outcome.fate == Outcomes.RETRY or not Move.has_ended(outcome.id) then
      too_late(outcome)
      local is_after = outcome.fate == Outcomes.RETRY and is_forgotten(outcome.fence)
        and (just_ended[outcome.id] or Move.has_ended(outcome.id)) and Change.began(outcome.id) <= outcome.meant
      -- EXPIRED says that no attempt had begun
      if is_after and (redis.call('HGET', K.outcome, outcome.id) or ''):sub(1, 1) ~= Move.EXPIRED then
        note_try(outcome)  -- of an attempt before that end, or of a content that is still to come
      end
    elseif not succeed_after_all(outcome) then
      end_late(outcome)
      too_late(outcome)
    end
  end
  write_collected()
  if #followers > 0 then
    About.write_taken()  -- a follower may be held already
    Arrive.follow(followers, follower_ids, brought, field, now_ms)
  end
  -- last: if the call breaks off before and is made again, these jobs are still held, so they end and bring followers
  About.write()
  for fence, lives in pairs(leases_met) do
    Leases.tidy_lease(fence, lives and now_us or nil)
  end
  Logs.trim()
  if is_here('leases') then
    local gone = {}
    for _, id in ipairs(ids) do
      gone[#gone + 1] = not holds[id] and id or nil
    end
    Move.forget_progress(gone)
  end
  Parked.left(now_us)
  for _, group in ipairs(groups) do
    if group.pieces then
      Results.let_go(group.pieces)  -- of a large result that came too late
    end
    Counts.moved(group.jobtype, 'running', group.fate == Outcomes.SUCCEEDED and 'succeeded' or 'failed', group.plain)
  end
  Counts.write_counts(now_ms)
  redis.call('HSET', K.applied, field, to)
  return stale
end)
