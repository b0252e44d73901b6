-- What workers ask of jobs that they hold: do they still? Whatever lease does is renewed, if so wished.
-- ARGV     1    now_ms
--          2    identity of the store as the caller knows it
--          3    1 to renew, 2 to renew and read no rows
--          4    seconds of silence allowed from now on, or 0: as before
--          5    progress to be kept, or nothing
--          6    bytes printed before the next
--          7    lines that these jobs printed, or nothing: kept while somebody watches
--          then for each claim: id; fence, or 0: whichever lease holds it
-- Returns  flat per lease that was met: fence, worker, seconds of silence allowed; and flat per claim: 1 when it is
--          held under that fence, 2 when it is not and has not ended, 3 when it has ended or is not here; fence; 1 when
--          that lease holds it; 1 when its cancel was asked; row, if that is long without its argument, tries row, both
--          only where they are read; row of `generation`; where somebody watches what it prints, how many bytes of that
--          are known; each or nil
-- Errors   JQD_STORE_CHANGED; JQD_UNSETTLED when a claim is not held and a journal may know better; JQD_BAD_VALUE,
--          JQD_ARGUMENT; none after the first write
-- Cost     O(claims · members), and where they are read the bytes of their rows
register('touch', {'allow-oom'}, function()
  local now_ms, now_us = clock(ARGV[1])
  local identity, how, silence, progress = ARGV[2], ARGV[3], number(ARGV[4], 'silence'), ARGV[5]
  local log_from, log = number(ARGV[6], 'log'), ARGV[7]
  local FIRST, FIELDS = 8, 2
  local renew, reads = how ~= '0', how == '1'
  local STANDS, LATE, OVER = 1, 2, 3
  local SHORT = 1024  -- bytes of a row: to find where its argument begins takes longer than to say it

  Life.expect_life(identity)
  expect_rows(FIRST, FIELDS, 'claims')
  local ids, fences = {}, {}
  for at = FIRST, #ARGV, FIELDS do
    table.insert(ids, ARGV[at])
    table.insert(fences, number(ARGV[at + 1], 'fence'))
  end
  if #ids == 0 then
    return {{}, {}}
  end

  local function cancels_of(ids)
    local notes = {}
    for at, id in ipairs(ids) do
      notes[at] = 'c' .. id
    end
    return redis.call('ZMSCORE', K.tomb, unpack(notes))
  end

  local in_hand = About.look(ids)
  local rows = reads and redis.call('HMGET', K.jobs, unpack(ids)) or {}
  local tries = reads and redis.call('HMGET', K.tries, unpack(ids)) or {}
  local generations = redis.call('HMGET', K.generation, unpack(ids))
  local cancels = is_here('tomb') and cancels_of(ids) or {}
  local workers, standing, of_daemons, leases, answers, told = {}, {}, {}, {}, {}, 0

  -- The worker of a lease that stands, or nil. Asked once for each lease.
  local function worker_of(fence)
    if workers[fence] == nil then
      local allowed, _, worker = Leases.lease(fence)
      workers[fence] = allowed and allowed ~= '0' and {allowed, worker} or false
      if workers[fence] then
        leases[#leases + 1], leases[#leases + 2] = digits(fence), worker
        leases[#leases + 1] = silence > 0 and silence or number(allowed, 'silence')
      end
    end
    return workers[fence] and workers[fence][2] or nil
  end

  -- Whether a later content is here than the one that a daemon has in flight: the row of `generation` says so until the
  -- next change, also of whoever claims that content after the attempt before it.
  local function came_later(position, hold)
    local revision = (generations[position] or ''):match('^(%d+):%d+!$')
    return revision and tonumber(revision) > hold.fence
  end

  -- What is in the hand may be of a later content than the cancel, when the store is told again what it forgot.
  local function is_asked(position, id, hold)
    return cancels[position] and (not hold or Change.cancelled_to(id) >= tonumber(hold.generation or 0))
  end

  local has_watched = renew and redis.call('EXISTS', K.watched) == 1
  local function is_watched(id)
    return has_watched and (tonumber(redis.call('ZSCORE', K.watched, id) or 0)) > now_ms
  end

  for position, id in ipairs(ids) do
    local hold, row = in_hand[id], rows[position]
    local fence, said, is_lent = fences[position], OVER, 0
    local is_workers = hold and hold.sysid == About.WORKERS
    if fence == 0 and is_workers then
      fence = hold.fence
    end
    local is_known = is_workers and worker_of(fence) or not is_workers and hold and not came_later(position, hold)
    if hold and hold.fence == fence and is_known then
      said = STANDS
      if is_workers then
        is_lent, standing[fence] = 1, standing[fence] or {}
        table.insert(standing[fence], id)
      end
      if not is_workers then
        table.insert(of_daemons, id)
      end
    elseif (row or not reads and redis.call('HEXISTS', K.jobs, id) == 1) and not Move.has_ended(id) then
      said = LATE
    end
    if said ~= STANDS then
      Settled.expect_settled(identity)
    end
    answers[told + 1], answers[told + 2], answers[told + 3], answers[told + 4] = said, digits(fence), is_lent,
      is_asked(position, id, hold) and 1 or 0
    answers[told + 5], answers[told + 6] = row and (#row > SHORT and Move.header_of(row) or row) or false,
      tries[position] or false
    answers[told + 7] = is_workers and Leases.generation_of(hold) or not is_workers and generations[position] or false
    answers[told + 8] = said == STANDS and is_watched(id) and {fence} or false
    told = told + 8
  end

  local function note_progress(its)
    for _, id in ipairs(progress ~= '' and its or {}) do
      redis.call('HSET', K.leases, 'p' .. id, progress)
    end
  end

  note_progress(renew and of_daemons or {})
  for fence, its in pairs(renew and standing or {}) do
    local allowed, worker = unpack(workers[fence])
    Leases.beat(fence, silence > 0 and digits(silence) or allowed, '0', worker, now_us)
    note_progress(its)
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
