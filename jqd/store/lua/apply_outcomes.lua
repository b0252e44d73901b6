-- Settles attempts from a journal and moves its position, in one step.
-- ARGV     1    now_ms
--          2–4  position field, from, to
--          5    result_ttl_ms
--          6    history_max
--          7    1 when an earlier process of that daemon wrote them: it may have died before a worker heard what it was
--               given
--          8    1 when followers were left out that outcomes brought
--          9    number of words of groups of followers
--          10…  these groups (arrive.lua)
--          then groups of outcomes that have in common: fate (job.Fate), fence, jobtype, extra. Each is these four, a
--               count, and so many times three words:
--               * id, or "id:generation" of the content that ran
--               * the packed outcome
--               * of fate 6 the jobs that follow, for the outbox; or "=", of a copy with its positions "first last",
--               whose followers are here; or nothing
--               Extra is: the result to keep, or nothing; of a success that jobs follow, or that printed (fate 6),
--               "bytes of that result", and the result; of a RETRY "attempt priority delay_ms"; of any failure what the
--               attempt printed, in the next line; of a hand-over "seconds of silence allowed, worker"
-- Returns  places, from 0, of outcomes that came too late to change anything: of two of one job one may count; nil when
--          these were applied before: the answer was lost, and which they were
-- Errors   JQD_POSITION, JQD_STORE_CHANGED, JQD_BAD_VALUE, JQD_ARGUMENT; none after the first write
-- Cost     O(outcomes · members · log jobs), and the bytes; endings in flight are written in one go
register('apply_outcomes', {'allow-oom'}, function()
  local now_ms, now_us = clock(ARGV[1])
  local field, from, to = ARGV[2], ARGV[3], ARGV[4]
  local history_max = number(ARGV[6], 'history_max')

  if not Position.at_position(field, from, to) then
    return false
  end
  local FOLLOWERS = 10  -- the first of their words
  local behind = FOLLOWERS + number(ARGV[FOLLOWERS - 1], 'followers')
  local followers, follower_ids = Arrive.read_groups(FOLLOWERS, behind, Arrive.FIELDS)
  local outcomes, ids, groups = Outcomes.read_outcomes(behind)
  local in_hand, twice = About.look(ids)
  Forgotten.tell_of(outcomes, in_hand)
  local is_forgotten, is_earlier = Forgotten.forgotten()
  if ARGV[8] == '1' then
    Gone.note_gone(field, from, to)
  end

  -- Endings in flight and hand-overs are collected and written together: one call for many. `over` remembers until then
  -- endings of those that may be met again.
  local over, brought, write_collected, keep_result, finish, retry = {}, {}
  do
    local has_notes = is_here('tomb')
    local result_ttl_ms = number(ARGV[5], 'result_ttl_ms')
    local ended, dead, packed, cleared, waits = {}, {}, {}, {}, {}

    function write_collected()
      local adds = {
        {'ZADD', K.ended, ended}, {'ZADD', K.dead, dead}, {'HSET', K.outcome, packed}, {'ZADD', K.outbox, waits},
        {'ZREM', K.tomb, cleared},
      }
      for _, add in ipairs(adds) do
        if #add[3] > 0 then
          redis.call(add[1], add[2], unpack(add[3]))
        end
      end
      ended, dead, packed, cleared, waits = {}, {}, {}, {}, {}
    end

    -- Of an ending that counts now, and is no note: what follows it waits from now on to be pushed. Returns the job's
    -- place among the ended. A job with a kept result stands as if it ended when the result is dropped, so that
    -- trimming the ended to their number takes others first. The result lies under the job's id, or the note's of its
    -- ending.
    function keep_result(one, name)
      if one.follows and not name then
        waits[#waits + 1], waits[#waits + 2] = now_ms, one.id .. ' ' .. one.follows
      elseif one.brings and not name then
        brought[one.place] = one
      end
      if one.fate ~= Outcomes.SUCCEEDED or one.result == '' then
        return one.date_ms
      end
      Results.put(name or one.id, one.result, one.date_ms + result_ttl_ms)
      return one.date_ms + result_ttl_ms
    end

    -- A job whose cancel was asked ends as cancelled, unless it succeeded all the same, or is of a later content, whose
    -- change comes yet.
    local function asked(one)
      return has_notes and one.fate ~= Outcomes.SUCCEEDED and redis.call('ZSCORE', K.tomb, 'c' .. one.id)
        and Change.cancelled_to(one.id) >= tonumber(one.generation or 0)
    end

    function finish(one, hold)
      local id, cancelled = one.id, asked(one)
      if one.is_plain and cancelled then
        Counts.moved(one.jobtype, 'running', 'cancelled', id)
      elseif one.is_plain then
        local plain = one.plain
        plain[#plain + 1] = id
      end
      local set = one.fate == Outcomes.DEAD and not cancelled and dead or ended
      packed[#packed + 1], packed[#packed + 2] = id, cancelled and Move.CANCELLED .. one.kept or one.kept
      set[#set + 1], set[#set + 2] = keep_result(one), id
      Logs.keep(one, one.fate == Outcomes.SUCCEEDED)
      if has_notes then
        cleared[#cleared + 1] = 'c' .. id
      end
      if hold then
        About.leave(id, hold)
      end
      over[id] = not one.is_plain or nil
    end

    function retry(one, hold)
      local failures, how = Tries.add_try(one.id, one.attempt, one.kept, history_max), 'cancelled'
      Logs.keep(one)
      if asked(one) then
        Move.end_cancelled(one.id, one.date_ms, one.kept)
      else
        local jobtype, priority, due_ms, date_ms = one.jobtype, one.priority, now_ms + one.delay_ms, 0
        if due_ms <= now_ms or Change.changed(one.id) > 0 then
          -- Its row knows the queue; and if the job was edited while it ran, the outcome is of the content before the
          -- edit.
          local now_jobtype, now_priority, eligible_at_ms = Move.header(redis.call('HGET', K.jobs, one.id) or '')
          jobtype, priority = now_jobtype or jobtype, now_priority or priority
          date_ms = eligible_at_ms or 0
          due_ms = math.max(due_ms, date_ms)
        end
        if due_ms > now_ms then
          redis.call('ZADD', K.later, due_ms, one.id)
          Counts.note_blocked(one.id, due_ms, now_ms)
        else
          Move.add_ready(jobtype, priority, one.id, date_ms)
        end
        how = failures > 0 and 'retrying' or due_ms > now_ms and Counts.date_stands(due_ms) or 'waiting'
      end
      if one.is_plain then
        Counts.moved(one.jobtype, 'running', how, one.id)
      end
      About.leave(one.id, hold)
    end
  end

  -- What came after the job had ended, left the hand or was given again, or before the job itself.
  local end_late, note_try, note, note_early, finish_late, succeed_after_all
  do
    -- Of a job that waits, is in the hand of another attempt, has ended, or has not come yet: that an attempt failed is
    -- counted, and changes nothing else of it. Returns whether no later one is known, and this one was not. What is
    -- noted of a job that is not here goes some day with the note `r`.
    function note_try(one)
      local _, is_new, is_latest = Tries.add_try(one.id, one.attempt, one.kept, history_max)
      if redis.call('HEXISTS', K.jobs, one.id) == 0 and not redis.call('ZSCORE', K.tomb, 'r' .. one.id) then
        redis.call('ZADD', K.tomb, now_ms, 'r' .. one.id)
      end
      return is_new and is_latest
    end

    -- Of a job that has ended: this may be the ending of a later content, whose change is on its way.
    function end_late(one)
      if Change.note_late_end(one.id, one.kept, one.fate == Outcomes.DEAD, now_ms) then
        keep_result(one, 'z' .. one.id)
      end
    end

    -- Whether a success meets another end of its own content, or of an earlier one: cancelled, failed, or given up for
    -- deaths. The job did run, so that beats them in whatever order they come: another daemon may have found a worker
    -- silent whose success is in our journal.
    local function did_run(one)
      return one.fate == Outcomes.SUCCEEDED and Change.gives_way(redis.call('HGET', K.outcome, one.id) or '',
        tonumber(one.generation or 0))
    end

    -- Of an end that gave way: one of an earlier content goes as it does when a change begins the job anew.
    local function replace_end(one)
      local kept = redis.call('HGET', K.outcome, one.id)
      if kept and select(2, Change.failure_in(kept)) < tonumber(one.generation or 0) then
        Change.begin_anew(one.id, history_max)
      end
    end

    -- Notes the outcome of a job that has not come yet. Returns whether it says anything new: the first ending noted
    -- stays, but a success beats a failure.
    function note(one)
      local ends = redis.call('ZMSCORE', K.tomb, 's' .. one.id, 'd' .. one.id)
      if (ends[1] or ends[2]) and not did_run(one) then
        if one.fate == Outcomes.RETRY then
          note_try(one)
        else
          end_late(one)
        end
        return false
      elseif one.fate == Outcomes.RETRY then
        if note_try(one) then
          Logs.keep(one)
          redis.call('ZADD', K.tomb, now_ms + one.delay_ms, 'r' .. one.id)
        end
      else
        Logs.keep(one, one.fate == Outcomes.SUCCEEDED)
        replace_end(one)
        keep_result(one)
        redis.call('HSET', K.outcome, one.id, one.kept)
        redis.call('ZREM', K.tomb, 'd' .. one.id)
        redis.call('ZADD', K.tomb, now_ms, (one.fate == Outcomes.DEAD and 'd' or 's') .. one.id)
      end
      return true
    end

    -- A success of an attempt that is no longer the present one (the job did run), or any end of a forgotten claim, of
    -- a job that has not ended.
    function finish_late(one, hold)
      finish(one, hold)
      write_collected()
      Move.stop_waiting(one.id, redis.call('HGET', K.jobs, one.id))
    end

    -- A success of a job that lies among the ended otherwise. Returns whether the job is such a one.
    function succeed_after_all(one)
      if Change.began(one.id) > one.meant or not did_run(one) then
        return false
      end
      redis.call('ZREM', K.dead, one.id)
      replace_end(one)
      redis.call('ZADD', K.ended, keep_result(one), one.id)
      redis.call('HSET', K.outcome, one.id, one.kept)
      return true
    end

    -- Of a job that is in a hand and has not come yet: the note takes it out of that hand.
    function note_early(one, hold)
      About.leave(one.id, hold)
      return note(one)
    end
  end

  -- A success of an older attempt counts, unless a later content is in the hand: the job did run. Any outcome of a
  -- claim that the store has forgotten counts, unless the store knows a later claim; that an attempt of the same
  -- content failed counts then, too, for the job may come back from that claim untried.
  local counts
  do
    -- Which content is in that hand: its generation, 0 where nobody said.
    local function in_hand_of(hold) return tonumber(hold and hold.generation or 0) end

    function counts(one, hold)
      if one.fate == Outcomes.SUCCEEDED and in_hand_of(hold) <= one.meant then
        return true
      end
      local is_behind = hold and hold.fence > one.fence
      if is_forgotten(one.fence) and not is_behind then
        return true
      elseif one.fate ~= Outcomes.RETRY or in_hand_of(hold) > one.meant then
        return false
      end
      -- Or the store went back to the time of that claim, and was told of a later one before: then it has forgotten
      -- what came of this one.
      return is_forgotten(one.fence) or is_earlier(one.fence)
        and is_forgotten(is_behind and hold.fence or Tries.last_of(one.id))
    end
  end

  -- Whether the outcome is of what lies in that hand, or of a later claim: the store was told again of an earlier one,
  -- which its worker had given back, and the later one it has forgotten.
  local function is_of(one, hold)
    return hold.fence == one.fence or hold.sysid == About.WORKERS and hold.fence < one.fence and is_forgotten(one.fence)
  end

  -- Nearly all outcomes are of jobs in flight that are as they were when they were claimed: nothing has changed them,
  -- or the last that did is what ran, and no edit came behind it. Whatever else may happen to one is found by looking
  -- at it before and after.
  do
    local revised = call.has_changes and #ids > 0 and redis.call('HMGET', K.generation, unpack(ids)) or {}
    for at, one in ipairs(outcomes) do
      local hold = in_hand[one.id]
      -- of an earlier life: it may have been told before
      one.date_ms = is_earlier(one.fence) and Change.ended_at(one.kept, now_ms) or now_ms
      local is_its = hold and hold.fence == one.fence and not twice[one.id] and not hold.is_early
      local is_known = not revised[at] or one.generation and revised[at] == one.generation .. ':' .. one.generation
      one.is_plain = is_its and is_known and one.jobtype ~= ''
      if not one.is_plain and not (is_its and one.fate == Outcomes.ENTRUSTED) then
        Stands.watch(one.id)
      end
    end
  end

  local stale = {}
  -- Of an earlier life: the success that counted may have been another journal's copy of this one, which has nothing of
  -- what follows (get_ends). Or it counted there, and the change that began the job anew behind it is told first.
  local function is_told_again(one)
    if not is_earlier(one.fence) then
      return false
    end
    local kept = redis.call('HGET', K.outcome, one.id)
    return kept and Change.fence_of(kept) == one.fence or Change.began(one.id) > one.meant
  end

  -- It changes nothing. But a success of a forgotten claim, or of an earlier life, may have counted before: what
  -- follows it may be in no journal yet.
  local function too_late(one)
    table.insert(stale, one.place)
    if not (one.follows or one.brings) or not (is_forgotten(one.fence) or is_told_again(one)) then
      return
    elseif one.brings then
      brought[one.place] = one
    else
      redis.call('ZADD', K.outbox, now_ms, one.id .. ' ' .. one.follows)
    end
  end

  local met = {}  -- outcomes of what workers hold: fence → whether it was of that lease
  for at, one in ipairs(outcomes) do
    local hold = in_hand[one.id]
    one.place = at - 1
    if hold and hold.sysid == About.WORKERS and one.fate ~= Outcomes.ENTRUSTED then
      met[hold.fence] = met[hold.fence] or hold.fence == one.fence
    end
    if over[one.id] and one.fate ~= Outcomes.RETRY then
      write_collected()  -- how it ended counts below: this may be of a later content, which is not here yet
      over[one.id] = nil
    end
    if one.fate == Outcomes.ENTRUSTED then
      if Hands.may_entrust(one, hold, is_forgotten, is_earlier) then
        in_hand[one.id] = Hands.entrust(one, hold, now_us, ARGV[7] == '1' or is_earlier(one.fence))
      else
        table.insert(stale, one.place)
      end
    elseif hold and hold.is_early then
      local is_its = is_of(one, hold)
      if not is_its and not counts(one, hold) then
        too_late(one)
      elseif not is_its and one.fate == Outcomes.RETRY then
        note_try(one)
      else
        in_hand[one.id] = nil
        if not note_early(one, hold) then
          too_late(one)
        end
      end
    elseif hold and is_of(one, hold) then
      if call.has_changes and not one.is_plain and Change.began(one.id) > one.meant then
        -- The content was exchanged while the job ran: the outcome of the older one does not count, and the new one
        -- waits.
        Back.put_back(one.id, redis.call('HGET', K.jobs, one.id), now_ms, 'running', hold.fence)
        About.leave(one.id, hold)
        too_late(one)
      elseif one.fate == Outcomes.RETRY then
        retry(one, hold)
      else
        finish(one, hold)
      end
      in_hand[one.id] = nil
    elseif not hold and not over[one.id] and redis.call('HEXISTS', K.jobs, one.id) == 0 then
      if not note(one) then
        too_late(one)
      end
    elseif not over[one.id] and not Move.has_ended(one.id) and counts(one, hold)
        and Change.began(one.id) <= one.meant then
      if one.fate ~= Outcomes.RETRY then
        finish_late(one, hold)
        in_hand[one.id] = nil
      else
        note_try(one)
      end
    elseif over[one.id] or one.fate == Outcomes.RETRY or not Move.has_ended(one.id) then
      too_late(one)
      local is_after = one.fate == Outcomes.RETRY and is_forgotten(one.fence)
        and (over[one.id] or Move.has_ended(one.id)) and Change.began(one.id) <= one.meant
      -- which says that no attempt had begun
      if is_after and (redis.call('HGET', K.outcome, one.id) or ''):sub(1, 1) ~= Move.EXPIRED then
        note_try(one)  -- of an attempt before that end, or of a content that is not here yet
      end
    elseif not succeed_after_all(one) then
      end_late(one)
      too_late(one)
    end
  end
  write_collected()
  if #followers > 0 then
    About.write_taken()  -- one of them may be in a hand already
    Arrive.follow(followers, follower_ids, brought, field, now_ms)
  end
  -- last: a call that breaks off is made once more, and what is in a hand still ends then, and brings what follows
  About.write()
  for fence, lives in pairs(met) do
    Leases.tidy_lease(fence, lives and now_us or nil)
  end
  Logs.trim()
  if is_here('leases') then
    local gone = {}
    for _, id in ipairs(ids) do
      gone[#gone + 1] = not in_hand[id] and id or nil
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
