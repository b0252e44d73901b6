#!lua flags=no-writes
-- All about one job.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, id, last field of the journal that made the id, or nothing, identity of the store as the caller knows
--          it: "never was" is no answer in a store that was emptied just now
-- Returns  place (ready, later, held, ended, dead, nowhere, early, unseen), its score, sysid that holds it, row, tries row,
--          outcome, result, 1 when its cancel was asked, last id applied of that journal; nil for what is not there
-- Errors   JQD_STORE_CHANGED, JQD_WRONG_TYPE
-- Cost     O(members + log jobs), and its bytes
--@include fail keys holder move early life
local id, last_field = ARGV[2], ARGV[3]

expect('jobs', 'types', 'later', 'tries', 'ended', 'dead', 'outcome', 'result', 'tomb', 'applied', 'early', 'life')
expect_held_keys()
expect_life(ARGV[4])
local row = redis.call('HGET', K.jobs, id)
local last_id = redis.call('HGET', K.applied, last_field)

local function place()
  if not row then
    return early_holder(id) and 'early' or 'unseen', '0', false
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
  local jobtype = header(row)
  if jobtype then
    expect_kind(ready_key(jobtype), 'ready')
    local score = redis.call('ZSCORE', ready_key(jobtype), id)
    if score then
      return 'ready', score, false
    end
  end
  return 'nowhere', '0', false
end

local name, score, sysid = place()
local asked = redis.call('ZSCORE', K.tomb, 'c' .. id) and '1'
return {
  name, score, sysid, row, redis.call('HGET', K.tries, id), redis.call('HGET', K.outcome, id),
  redis.call('HGET', K.result, id), asked, last_id,
}
