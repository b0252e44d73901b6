#!lua flags=allow-oom
-- These jobs were made by the outcomes of others, and are pushed.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, then per pair: parent, child
-- Returns  number of pairs
-- Errors   JQD_WRONG_TYPE
-- Cost     O(pairs · log children)
--@include fail keys
expect('linked', 'jobs')
for at = 2, #ARGV, 2 do
  expect_kind(K.children .. ARGV[at], 'children')
end
for at = 2, #ARGV, 2 do
  if redis.call('HEXISTS', K.jobs, ARGV[at]) == 1 then
    redis.call('ZADD', K.children .. ARGV[at], 1, ARGV[at + 1])
    redis.call('ZADD', K.linked, 0, ARGV[at])
  end
end
return (#ARGV - 1) / 2
