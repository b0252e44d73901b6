#!lua flags=allow-oom
-- Says what this partition has of concurrencies that are counted elsewhere (include/permits.lua), and gives back what is free of it if others want it.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, identity of the store as the caller knows it, 1 to note what is told here (the partition that wants slots), 1 to give back, then per
--          bucket: bucket, era, what was granted here in it, to the row that was made then
-- Returns  flat: era, granted, returned, made
-- Errors   JQD_STORE_CHANGED, JQD_UNSETTLED while a job may be in a hand that is not known here, JQD_WRONG_TYPE, JQD_BAD_VALUE, JQD_ARGUMENT; none after the first write
-- Cost     O(buckets)
--@include fail keys now life order queues heads members settled permits slots
local _, now_us = clock(ARGV[1])
local identity, keep, give_back = ARGV[2], ARGV[3] == '1', ARGV[4] == '1'
local FIRST, FIELDS, KEPT_US = 5, 4, 300000  -- for who wanted it: it asks again after a third of that

expect('life', 'members', 'early', 'due', 'keyed', 'permits', 'fence')
expect_life(identity)
expect_settled(identity)
if redis.call('EXISTS', K.early) == 1 then
  fail('JQD_UNSETTLED', '')
end
for at = FIRST, #ARGV, FIELDS do
  expect_kind(K.busy .. ARGV[at], 'busy')
  number(ARGV[at + 1], 'era')
  number(ARGV[at + 2], 'granted')
  number(ARGV[at + 3], 'made')
end
local answer = {}
for at = FIRST, #ARGV, FIELDS do
  local bucket = ARGV[at]
  local its_era, its_granted, its_made = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local era, granted, returned, made = slots.learn(bucket, its_era, its_granted, its_made, 0, now_us, keep)
  local row = permits.row(bucket)
  if give_back and row then
    row.wanted_us = keep and row.wanted_us or now_us + KEPT_US
    slots.give_back(bucket)
    slots.write(bucket, row)
    returned = row.returned
  end
  for _, value in ipairs({era, granted, returned, made}) do
    answer[#answer + 1] = digits(value)
  end
end
return answer
