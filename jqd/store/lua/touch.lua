#!lua flags=allow-oom
-- What workers ask of jobs that they hold: do they still? Whatever lease does is renewed, if so wished.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, identity of the store as the caller knows it, 1 to renew, seconds of silence allowed from now on or 0: as before, progress to
--          be kept or nothing, then per claim: id, fence or 0: whichever lease holds it
-- Returns  per claim: 1 when it is held under that fence, 2 when it is not and has not ended, 3 when it has ended or is not here;
--          fence; worker or nil; seconds of silence allowed, 0 of no lease; 1 when its cancel was asked; header of the row, tries row, row of `generation`, each or nil
-- Errors   JQD_STORE_CHANGED; JQD_UNSETTLED when a claim is not held and a journal may know better; JQD_WRONG_TYPE, JQD_BAD_VALUE,
--          JQD_ARGUMENT; none after the first write
-- Cost     O(claims · members), and the bytes of their rows
--@include fail keys now order heads members life settled holder move leases
local _, now_us = clock(ARGV[1])
local identity, renew, silence, progress = ARGV[2], ARGV[3] == '1', number(ARGV[4], 'silence'), ARGV[5]
local FIRST, FIELDS = 6, 2
local STANDS, LATE, OVER = 1, 2, 3

expect('jobs', 'ended', 'dead', 'tomb', 'tries', 'generation', 'life')
expect_leases()
expect_held_keys()
expect_life(identity)
if (#ARGV - FIRST + 1) % FIELDS ~= 0 then
  fail('JQD_ARGUMENT', 'claims')
end
local ids, fences = {}, {}
for at = FIRST, #ARGV, FIELDS do
  table.insert(ids, ARGV[at])
  table.insert(fences, number(ARGV[at + 1], 'fence'))
end
if #ids == 0 then
  return {}
elseif silence > 0 then
  expect_beats(digits(silence))
end
local in_hand = holders(ids)
local rows = redis.call('HMGET', K.jobs, unpack(ids))
local tries, generations = redis.call('HMGET', K.tries, unpack(ids)), redis.call('HMGET', K.generation, unpack(ids))
local MISSED = '!'  -- ends a row of `generation`: a later content is here than the one that a daemon has in hand
local workers, standing, answers = {}, {}, {}

-- The worker of a lease that stands, or nil. Asked once for each lease.
local function worker_of(fence)
  if workers[fence] == nil then
    local allowed, _, worker = lease(fence)
    if allowed then
      expect_beats(allowed)
    end
    workers[fence] = allowed and allowed ~= '0' and {allowed, worker} or false
  end
  return workers[fence] and workers[fence][2] or nil
end

for position, id in ipairs(ids) do
  local hold, row = in_hand[id], rows[position]
  local fence, said, worker, allowed = fences[position], OVER, false, 0
  local is_workers = hold and hold.sysid == WORKERS
  if fence == 0 and is_workers then
    fence = hold.fence
  end
  local is_known = is_workers and worker_of(fence) or not is_workers and not (generations[position] or ''):find(MISSED, 1, true)
  if hold and hold.fence == fence and is_known then
    said, worker = STANDS, is_workers and worker_of(fence) or false
    if is_workers then
      allowed = silence > 0 and silence or number(workers[fence][1], 'silence')
      standing[fence] = standing[fence] or {}
      table.insert(standing[fence], id)
    end
  elseif row and not has_ended(id) then
    said = LATE
  end
  if said ~= STANDS then
    expect_settled(identity)
  end
  table.insert(answers, {
    said, digits(fence), worker, allowed, redis.call('ZSCORE', K.tomb, 'c' .. id) and 1 or 0,
    row and header_of(row), tries[position], is_workers and lent_generation(id) or not is_workers and generations[position],
  })
end
for fence, its in pairs(renew and standing or {}) do
  local allowed, worker = unpack(workers[fence])
  beat(fence, silence > 0 and digits(silence) or allowed, '0', worker, now_us)
  for _, id in ipairs(progress ~= '' and its or {}) do
    redis.call('HSET', K.leases, 'p' .. id, progress)
  end
end
return answers
