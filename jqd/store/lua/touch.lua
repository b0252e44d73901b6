-- Tells workers whether they still hold their jobs, and renews their leases.
-- ARGV     1    now_ms
--          2    identity of the store
--          3    1 to renew, 2 to renew and read no rows
--          4    seconds of silence allowed from now on, or 0: as before
--          5    progress to be kept, or nothing
--          6    bytes printed before the next argument
--          7    lines that these jobs printed, or nothing: kept while somebody watches
--          then for each claim: id; fence, or 0: of the lease that holds it
-- Returns  flat per lease: fence, worker, seconds of silence allowed; and flat per claim: 1: held under that fence, 2:
--          not held so, but not ended, 3: ended or not here; fence; 1 if a lease holds it; 1 if it is to be cancelled;
--          row, a long one without its argument, row of `tries`, both only if they are read; row of `generation`; if
--          somebody watches, how many bytes of its log are known; each or nil
-- Errors   JQD_STORE_CHANGED; JQD_UNSETTLED when a claim is not held and a journal may know better; JQD_BAD_VALUE; none
--          after the first write
-- Cost     O(claims · members), and the bytes of the rows that are read
register('touch', {'allow-oom'}, function()
  local now_ms, now_us = clock(ARGV[1])
  local identity, how, silence, progress = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
  local log_from, log = tonumber(ARGV[6]), ARGV[7]
  local FIRST, FIELDS = 8, 2
  local renew, reads = how ~= '0', how == '1'
  local STANDS, LATE, OVER = 1, 2, 3
  local SHORT = 1024  -- bytes of a row: to cut off the argument would take longer than to send it

  Life.expect_life(identity)
  local ids, fences = {}, {}
  for at = FIRST, #ARGV, FIELDS do
    table.insert(ids, ARGV[at])
    table.insert(fences, tonumber(ARGV[at + 1]))
  end
  if #ids == 0 then
    return {{}, {}}
  end

  local function cancels_of(ids)
    local notes = {}
    for at, id in ipairs(ids) do
      notes[at] = 'c' .. id
    end
    return redis.call('ZMSCORE', K.tombstones, unpack(notes))
  end

  local holds = About.look(ids)
  local rows = reads and redis.call('HMGET', K.jobs, unpack(ids)) or {}
  local tries = reads and redis.call('HMGET', K.tries, unpack(ids)) or {}
  local generations = redis.call('HMGET', K.generation, unpack(ids))
  local cancels = is_here('tombstones') and cancels_of(ids) or {}
  local workers, standing, of_daemons, leases, answers, filled = {}, {}, {}, {}, {}, 0

  -- Returns the worker of a lease that stands, or nil; each lease is read once.
  local function worker_of(fence)
    if workers[fence] == nil then
      local allowed, _, worker = Leases.lease(fence)
      workers[fence] = allowed and allowed ~= '0' and {allowed, worker} or false
      if workers[fence] then
        leases[#leases + 1], leases[#leases + 2] = digits(fence), worker
        leases[#leases + 1] = silence > 0 and silence or tonumber(allowed)
      end
    end
    return workers[fence] and workers[fence][2] or nil
  end

  -- Returns whether a later content is here than the one that a daemon has in flight: `generation` says so until the
  -- next change, even if that content was claimed after the attempt before it.
  local function came_later(position, hold)
    local revision = (generations[position] or ''):match('^(%d+):%d+!$')
    return revision and tonumber(revision) > hold.fence
  end

  -- The content that is held may be later than the cancel, when the store is being restored.
  local function is_asked(position, id, hold)
    return cancels[position] and (not hold or Change.cancelled_to(id) >= tonumber(hold.generation or 0))
  end

  local has_watched = renew and redis.call('EXISTS', K.watched) == 1
  local function is_watched(id)
    return has_watched and (tonumber(redis.call('ZSCORE', K.watched, id) or 0)) > now_ms
  end

  for position, id in ipairs(ids) do
    local hold, row = holds[id], rows[position]
    local fence, state, is_lent = fences[position], OVER, 0
    local is_workers = hold and hold.sysid == About.WORKERS
    if fence == 0 and is_workers then
      fence = hold.fence
    end
    local is_known = is_workers and worker_of(fence) or not is_workers and hold and not came_later(position, hold)
    if hold and hold.fence == fence and is_known then
      state = STANDS
      if is_workers then
        is_lent, standing[fence] = 1, standing[fence] or {}
        table.insert(standing[fence], id)
      end
      if not is_workers then
        table.insert(of_daemons, id)
      end
    elseif (row or not reads and redis.call('HEXISTS', K.jobs, id) == 1) and not Move.has_ended(id) then
      state = LATE
    end
    if state ~= STANDS then
      Settled.expect_settled(identity)
    end
    answers[filled + 1], answers[filled + 2], answers[filled + 3], answers[filled + 4] = state, digits(fence), is_lent,
      is_asked(position, id, hold) and 1 or 0
    answers[filled + 5], answers[filled + 6] = row and (#row > SHORT and Move.header_of(row) or row) or false,
      tries[position] or false
    answers[filled + 7] = is_workers and Leases.generation_of(hold) or not is_workers and generations[position] or false
    answers[filled + 8] = state == STANDS and is_watched(id) and {fence} or false
    filled = filled + 8
  end

  local function note_progress(job_ids)
    for _, id in ipairs(progress ~= '' and job_ids or {}) do
      redis.call('HSET', K.leases, 'p' .. id, progress)
    end
  end

  note_progress(renew and of_daemons or {})
  for fence, job_ids in pairs(renew and standing or {}) do
    local allowed, worker = unpack(workers[fence])
    Leases.beat(fence, silence > 0 and digits(silence) or allowed, '0', worker, now_us)
    note_progress(job_ids)
  end
  for at, id in ipairs(has_watched and ids or {}) do
    local place = at * 8
    if answers[place] then
      local fence = answers[place][1]
      if log ~= '' then
        Logs.add(id, fence, log_from, log, now_ms)
      end
      answers[place] = Logs.printed(id, fence)
    end
  end
  if log ~= '' then
    Logs.trim()
  end
  return {leases, answers}
end)
