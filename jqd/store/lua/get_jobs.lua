#!lua flags=no-writes
-- All about some jobs.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, identity of the store as the caller knows it: "never was" is no answer in a store that was emptied just
--          now; 0 for all, or else results are left out, and arguments of rows with more bytes than this; the jobtype that is looked for, or nothing; 1: of
--          that name of each tenant; how they ended that are looked for, or nothing; then per job: id, last field of the journal that made it, or nothing
-- Returns  per job: place (ready, later, held, ended, dead, nowhere, early, unseen; awaited: it, or a later content, was
--          promised under its name and is on its way, of which only a full answer tells the latter), its score, sysid that holds it, row,
--          tries row, outcome, result, 1 when its cancel was asked, last id applied of that journal, its row of
--          `generation`, worker that holds it, how far it is, what its last failed attempt printed; nil for
--          what is not there, and in place of a job that is not looked for
-- Errors   JQD_STORE_CHANGED, JQD_WRONG_TYPE
-- Cost     O(jobs · (members + log jobs)), and their bytes; of those that ended and are not looked for O(1) and the bytes of their outcome
--@include fail keys now counts order queues heads pages members holder move stands early life tries leases results change
local row_bytes = number(ARGV[3], 'bytes')
local brief = row_bytes > 0
local wanted, of_each, how = ARGV[4], ARGV[5] == '1', ARGV[6]
local FIRST, FIELDS = 7, 2

expect('jobs', 'types', 'later', 'tries', 'ended', 'dead', 'outcome', 'result', 'tomb', 'applied', 'early', 'life', 'generation', 'names', 'logs')
expect_leases()
expect_held_keys()
expect_life(ARGV[2])

local function place(id, row)
  if not row then
    return early_holder(id) and 'early' or redis.call('ZSCORE', K.tomb, 'p' .. id) and 'awaited' or 'unseen', '0', false
  elseif not brief and awaits_newer(id, row) then
    return 'awaited', '0', holder(id) or false
  end
  for _, name in ipairs({'ended', 'dead', 'later'}) do
    local score = redis.call('ZSCORE', K[name], id)
    if score then
      return name, score, false
    end
  end
  local sysid, fence = holder(id)
  if sysid then
    return 'held', string.format('%.0f', fence), sysid
  end
  local jobtype, priority = header(row)
  if jobtype then
    expect_ready(jobtype)
    local score = place_of(jobtype, priority, id)
    if score then
      return 'ready', score, false
    end
  end
  return 'nowhere', '0', false
end

-- Of what has ended its outcome tells, unless it has another content since: that is short, and a row brings its argument.
local function may_fit(id)
  local kept = (wanted ~= '' or how ~= '') and redis.call('HGET', K.outcome, id) or nil
  local its_how, its = ended_as(kept)
  if kept and how ~= '' and its_how ~= how then
    return false
  elseif wanted == '' then
    return true
  elseif not kept or (its or '') == '' or has_changes and redis.call('HEXISTS', K.generation, id) == 1 then
    its = header(redis.call('HGET', K.jobs, id) or '') or wanted
  end
  its = its:match('^[^\30]*')
  return its == wanted or of_each and its:match('\31(.*)$') == wanted
end

local function view(id, last_field)
  local row = redis.call('HGET', K.jobs, id)
  local name, score, sysid = place(id, row)
  local worker = sysid == WORKERS and (select(3, lease(tonumber(score))) or '')
  local kept = redis.call('HGET', K.outcome, id)
  local progress = (sysid or kept and kept:sub(1, 1) == CANCELLED) and redis.call('HGET', K.leases, 'p' .. id)
  return {
    name, score, sysid, row and brief and #row > row_bytes and header_of(row) or row, redis.call('HGET', K.tries, id),
    kept, not brief and redis.call('HGET', K.result, id),
    redis.call('ZSCORE', K.tomb, 'c' .. id) and '1', redis.call('HGET', K.applied, last_field),
    redis.call('HGET', K.generation, id), worker, progress, not brief and redis.call('HGET', K.logs, id),
  }
end

local views = {}
for at = FIRST, #ARGV, FIELDS do
  views[#views + 1] = may_fit(ARGV[at]) and view(ARGV[at], ARGV[at + 1])
end
return views
