-- Returns all about some jobs: about the first ones, as many as BYTES_MAX allow, one at least.
-- ARGV     1    now_ms
--          2    identity of the store: "never was" is no answer in a store that was just emptied
--          3    0: all; else without results, and without arguments of rows above so many bytes
--          4    1: of failed attempts only the last
--          then for each job: id; last field of its journal, or nothing
-- Returns  per job: place (ready, later, held, ended, dead, nowhere, early, unseen; awaited: the job, or a later
--          content, was promised under its name and is on its way, or may be, as a daemon applies its jobs again; the
--          later content only in a full answer), its score there, sysid that holds it, row, row of `tries`, outcome,
--          result, 1 if it is to be cancelled, last id applied of its journal, row of `generation`, worker that holds
--          it, progress, log of its last failed attempt; nil for what there is not
-- Errors   JQD_STORE_CHANGED
-- Cost     O(jobs · (members + log jobs)), and their bytes: BYTES_MAX, and those of one job
register('get_jobs', {'no-writes'}, function()
  local row_bytes = tonumber(ARGV[3])
  local brief = row_bytes > 0
  local is_last = ARGV[4] == '1'
  local FIRST, FIELDS = 5, 2
  local BYTES_MAX = 2 * 1024 * 1024  -- read in one call: a millisecond or two

  Life.expect_life(ARGV[2])

  local function place(id, row)
    if not row then
      local may_come = Behind.is_any() or redis.call('ZSCORE', K.tombstones, 'p' .. id)
      return About.hold(id) and 'early' or may_come and 'awaited' or 'unseen', '0', false
    end
    local name, score, hold = Stands.place(id)
    local sysid = hold and hold.sysid or false
    if not brief and Change.awaits_newer(id, row) then
      return 'awaited', '0', sysid
    elseif name then
      return name, score, sysid
    end
    local jobtype, priority = Move.header(row)
    if jobtype then
      score = Pages.place_of(jobtype, priority, id)
      if score then
        return 'ready', score, false
      end
    end
    return 'nowhere', '0', false
  end

  local bytes = 0
  local function weighed(row)
    bytes = bytes + (row and #row or 0)
    return row
  end

  -- Returns a row of `tries` (tries.lua) up to its latest outcome.
  local function latest(row)
    local at = Move.has_begun(row) and 5 or 9
    return #row > at + 3 and row:sub(1, at + 3 + struct.unpack('>I4', row, at)) or row
  end

  local function view(id, last_field)
    local row, tries = weighed(redis.call('HGET', K.jobs, id)), weighed(redis.call('HGET', K.tries, id))
    local name, score, sysid = place(id, row)
    local worker = sysid == About.WORKERS and (select(3, Leases.lease(tonumber(score))) or '')
    local kept = weighed(redis.call('HGET', K.outcome, id))
    local progress = (sysid or kept and kept:sub(1, 1) == Move.CANCELLED) and redis.call('HGET', K.leases, 'p' .. id)
    return {
      name, score, sysid, row and brief and #row > row_bytes and Move.header_of(row) or row,
      tries and is_last and latest(tries) or tries,
      kept, not brief and weighed(redis.call('HGET', K.result, id)),
      redis.call('ZSCORE', K.tombstones, 'c' .. id) and '1', redis.call('HGET', K.applied, last_field),
      redis.call('HGET', K.generation, id), worker, progress, not brief and weighed(redis.call('HGET', K.logs, id)),
    }
  end

  local views = {}
  for at = FIRST, #ARGV, FIELDS do
    if bytes >= BYTES_MAX then
      break
    end
    views[#views + 1] = view(ARGV[at], ARGV[at + 1])
  end
  return views
end)
