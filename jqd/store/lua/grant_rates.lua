#!lua flags=allow-oom
-- Lets another partition start jobs of rates that are counted here. What is granted counts as started, whenever within `lasting_us` that is.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, identity of the store as the caller knows it, then per bucket: bucket, for how many starts, how few are of use, lasting_us
-- Returns  flat: granted, 1 when there may be more at once, µs until there is more
-- Errors   JQD_STORE_CHANGED, JQD_WRONG_TYPE, JQD_ARGUMENT; none after the first write
-- Cost     O(buckets + what leaves their windows)
--@include fail keys now life order queues heads permits limits spend
local _, now_us = clock(ARGV[1])
local FIRST, FIELDS, UNKNOWN_US = 3, 4, 100000

expect('life', 'limits', 'due', 'keyed')
expect_life(ARGV[2])
for at = FIRST, #ARGV, FIELDS do
  expect_kind(K.spent .. ARGV[at], 'spent')
  number(ARGV[at + 1], 'starts')
  number(ARGV[at + 2], 'least')
  number(ARGV[at + 3], 'lasting')
end
local answer = {}
for at = FIRST, #ARGV, FIELDS do
  local bucket, starts, least = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local lasting_us = math.min(permits.AHEAD_US, tonumber(ARGV[at + 3]))
  local rule = limits.rule(bucket:match('^[^\29]*'))
  local granted, more, wait_us = 0, 0, UNKNOWN_US  -- the rule, or its rate, has not come here yet, or is gone
  if rule and rule.limit > 0 then
    local left, next_us, last = limits.rate_of(rule, K.spent .. bucket, now_us)
    if left >= math.max(1, least) then
      granted = math.min(left, starts)
      keyed.begin()  -- else nobody would look when that is out of the window
      redis.call('ZADD', K.due, 'LT', limits.write_rate(K.spent .. bucket, rule, granted, last, now_us, lasting_us), bucket)
    end
    more = left - granted >= math.max(1, least) and 1 or 0
    wait_us = math.max(1000, (next_us or now_us + rule.window_us) - now_us)
  end
  for _, value in ipairs({digits(granted), more, digits(math.ceil(wait_us))}) do
    answer[#answer + 1] = value
  end
end
return answer
