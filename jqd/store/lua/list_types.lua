#!lua flags=no-writes
-- How the jobs of each jobtype stand, a part of the jobtypes with each call.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, place to go on from ("0" first), about how many
-- Returns  place to go on from ("0": that was all); time in ms; flat: jobtype, row of counts, id of the
--          job that is next or nothing. A jobtype may be told twice
-- Errors   JQD_WRONG_TYPE, JQD_ARGUMENT
-- Cost     O(part · log waiting)
--@include fail keys now order queues heads pages
local now_ms = clock(ARGV[1])
local place, limit = ARGV[2], number(ARGV[3], 'limit')

expect('types', 'jobs', 'counts')
local following, rows = unpack(redis.call('HSCAN', K.counts, place, 'COUNT', limit))
local function oldest_of(jobtype)
  local id = first_waiting(jobtype) or keyed.known and keyed.best(jobtype)
  return id and id:match('^[^:]*') or ''
end

local found = {}
for at = 1, #rows, 2 do
  local jobtype = rows[at]:match('^of:(.*)$')
  if jobtype then
    local waiting, retrying = rows[at + 1]:match('^(%d+) %d+ %d+ (%d+)')
    local may_wait = waiting ~= '0' or retrying ~= '0'
    if may_wait then
      expect_ready(jobtype)
    end
    found[#found + 1], found[#found + 2] = jobtype, rows[at + 1]
    found[#found + 1] = may_wait and oldest_of(jobtype) or ''
  end
end
return {following, now_ms, found}
